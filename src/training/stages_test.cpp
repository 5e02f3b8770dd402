// Stages of a pipeline, each of which has some of a model's layers, train what one rank trains.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "base/tracing/trace.h"
#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "models/adapter.h"
#include "parallel/mesh_groups.h"
#include "parallel/replicas.h"
#include "tests/support/packed_rows.h"
#include "tests/support/ranked_model.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"
#include "training/objectives/gather_rows.h"

namespace temper::training {
namespace {

using collectives::Group;
using Rows = std::vector<data::PackedRow>;

constexpr int kSteps = 3;

// Of a model of four layers.
struct Case {
  const char* type = "qwen3";
  bool tied = false;
  int stages = 2, chunks = 1;
  Mesh mesh = {};
  TrainerOptions options = {};
  bool adapters = false;
  size_t rows = 5;
  std::vector<std::string> modules_to_save = {};  // of the adapters
  const char* adapted = "";                       // modules, as a regular expression; empty: all linears
};

Json config_of(const Case& given) {
  Json config = tiny_config(given.type);
  config.set("num_hidden_layers", 4);
  config.set("tie_word_embeddings", given.tied);
  if (config.find("layer_types") != nullptr)
    config.set("layer_types",
               Json::Array{"linear_attention", "full_attention", "linear_attention", "full_attention"});
  return config;
}

// Of unequal lengths, so that every micro-batch has another.
Rows rows_of(uint32_t step, size_t count) {
  Rows rows;
  for (uint32_t i = 0; i < count; ++i)
    rows.push_back(test_row(10 * step + i, {3 + 5 * i, 2 + (i + step) % 3}));
  for (data::PackedRow& row : rows) row.sources = {0, 1};
  return rows;
}

// What is trained after each step, and what comes of it.
struct Course {
  std::vector<StepResult> results;
  std::vector<std::vector<Tensor>> gradients, weights;  // by parameter, before clipping and after the step
  EvalResult evaluation;
};

struct Run {
  Run(Case given, const parallel::MeshGroups& groups) : update(groups.update()) {
    if (given.chunks > 1) given.options.pipeline = parallel::ScheduleKind::kInterleaved;
    model = ranked_model(groups, {.config = config_of(given), .chunks = given.chunks, .deviation = 0.05});
    optimizers::AdamWOptions damped;
    damped.eps = 1e-2;
    if (given.adapters) {
      LoraConfig lora{.rank = 3, .dropout = 0.1};
      lora.modules_to_save = given.modules_to_save;
      if (*given.adapted != '\0') lora.targets = {.regex = given.adapted};
      adapter = models::new_adapter(*model, lora, 5, "");
      adapter->set_dropout(lora.dropout);
    }
    optimizer =
        std::make_unique<optimizers::AdamW>(trained(), model->decoder.ops(), damped, groups.sharing());
    if (adapter)
      adapter_trainer = std::make_unique<AdapterTrainer>(model->decoder, given.options, update);
    else
      trainer = std::make_unique<Trainer>(model->decoder, *optimizer, given.options, nullptr, update);
  }
  layers::ParameterStore& trained() const {
    return adapter ? adapter->parameters() : model->decoder.parameters();
  }
  StepResult step(const Rows& rows) const {
    if (trainer) return trainer->step(rows, 2e-3);
    return adapter_trainer
        ->begin(
            {{.adapter = adapter.get(), .optimizer = optimizer.get(), .rows = &rows, .lr = 2e-3, .seed = 3}})
        .front()
        .wait();
  }

  parallel::UpdateRanks update;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<layers::Adapter> adapter;
  std::unique_ptr<optimizers::AdamW> optimizer;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<AdapterTrainer> adapter_trainer;
};

Course alone(const Case& given) {
  const parallel::MeshGroups groups(collectives::alone(), {});
  const Run run(given, groups);
  Course course;
  const layers::ParameterStore& trained = run.trained();
  for (uint32_t step = 0; step < kSteps; ++step) {
    course.results.push_back(run.step(rows_of(step, given.rows)));
    course.gradients.emplace_back();
    course.weights.emplace_back();
    for (size_t i = 0; i < trained.size(); ++i) {
      course.gradients.back().push_back(trained.spec(i).buffer ? Tensor() : trained[i].grad->grad().clone());
      course.weights.back().push_back(trained[i].value.clone());
    }
  }
  course.evaluation = evaluate(run.model->decoder, run.adapter.get(), rows_of(99, given.rows),
                               given.options.micro_batch_tokens);
  return course;
}

// The rank's part of `expected`, to rounding of its largest number.
void expect_part(const PlacedTensor& found, const Tensor& expected, double tolerance) {
  const Tensor own = Tensor::empty(found.placement->own(), DType::kF32);
  found.placement->take_own(expected, own);
  double largest = 1e-6, worst = 0;
  for (const float value : expected.values<float>()) largest = std::max<double>(largest, std::abs(value));
  for (int64_t i = 0; i < own.numel(); ++i)
    worst = std::max<double>(worst, std::abs(found.own.data<float>()[i] - own.data<float>()[i]));
  EXPECT_LE(worst, tolerance * largest) << found.name;
}

void expect_step(const StepResult& found, const StepResult& expected) {
  EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss);
  EXPECT_NEAR(found.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
  EXPECT_NEAR(found.balance_loss, expected.balance_loss, 1e-6);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.target_tokens, expected.target_tokens);
  EXPECT_DOUBLE_EQ(found.flops, expected.flops);
  ASSERT_EQ(found.sources.size(), expected.sources.size());
  for (size_t i = 0; i < found.sources.size(); ++i)
    EXPECT_NEAR(found.sources[i].sum, expected.sources[i].sum, 1e-5 * expected.sources[i].sum);
  ASSERT_EQ(found.routers.size(), expected.routers.size());
  for (size_t i = 0; i < found.routers.size(); ++i)
    EXPECT_EQ(found.routers[i].counts, expected.routers[i].counts);
}

void expect_one(const Case& given) {
  const Course expected = alone(given);
  for (const StepResult& result : expected.results) EXPECT_GT(result.grad_norm, 0.005);
  const int ranks = given.stages * given.mesh.size();
  collectives::launch("threads", {.ranks = ranks, .deadline = 60}, [&](Group& all) {
    const parallel::MeshGroups groups(all, given.mesh);
    const Run run(given, groups);
    for (uint32_t step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(fmt::format("rank {}, step {}", all.rank(), step));
      expect_step(
          run.step(rows_of_rank(rows_of(step, given.rows), run.update.rows.rank(), run.update.rows.size())),
          expected.results[step]);
      const layers::ParameterStore& trained = run.trained();
      for (const PlacedTensor& gradient : run.optimizer->summed_gradients())
        expect_part(gradient, expected.gradients[step][trained.index_of(gradient.name)], 5e-5);
      for (const PlacedTensor& weight : trained.placed())
        if (weight.placement->is_here())
          expect_part(weight, expected.weights[step][trained.index_of(weight.name)], 1e-5);
      parallel::check_replicas(all, trained.placed(), step);
    }
    const Rows held_out =
        rows_of_rank(rows_of(99, given.rows), run.update.rows.rank(), run.update.rows.size());
    const EvalResult evaluation = evaluate(run.model->decoder, run.adapter.get(), held_out,
                                           given.options.micro_batch_tokens, run.update);
    EXPECT_NEAR(evaluation.loss, expected.evaluation.loss, 1e-5);
    EXPECT_EQ(evaluation.target_tokens, expected.evaluation.target_tokens);
  });
}

TrainerOptions cut(int64_t tokens) {
  return {.max_grad_norm = 0.5, .micro_batch_tokens = tokens, .z_loss = 1e-2, .num_sources = 2};
}

TEST(PipelineStages, LearnWhatOneRankLearns) {
  for (const int stages : {2, 3, 4})
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(fmt::format("{} stages, tied {}", stages, tied));
      expect_one({.tied = tied, .stages = stages, .options = cut(1)});
    }
}

// Fewer micro-batches than stages, as many, and more.
TEST(PipelineStages, MayHaveAnyNumberOfMicroBatches) {
  for (size_t rows = 1; rows <= 7; ++rows) {
    SCOPED_TRACE(rows);
    expect_one({.stages = 3, .options = cut(1), .rows = rows});
    expect_one({.stages = 2, .chunks = 2, .options = cut(1), .rows = rows});
  }
  expect_one({.stages = 4, .options = cut(0)});
}

TEST(PipelineStages, ComputeLayersAgainAndKeepLess) {
  for (const Checkpointing checkpointing : {Checkpointing::kFull, Checkpointing::kSelective}) {
    TrainerOptions options = cut(1);
    options.checkpointing = checkpointing;
    expect_one({.type = "qwen3_moe", .options = options});
    // Replicas sum gradients while the last micro-batch's layers are computed again.
    expect_one({.stages = 2, .mesh = {.replicate = 2}, .options = options, .rows = 8});
    options.pipeline = parallel::ScheduleKind::kZbH1;
    expect_one({.stages = 2, .mesh = {.replicate = 2}, .options = options, .rows = 8});
  }
}

TEST(PipelineStages, HaveLayersOfSeveralKinds) {
  TrainerOptions options = cut(1);
  options.routers = {.balance_factor = 0.1, .global_balance = true};
  expect_one({.type = "qwen3_moe", .stages = 2, .options = options});
  expect_one({.type = "qwen3_moe", .tied = true, .stages = 2, .chunks = 2, .options = options});
  expect_one({.type = "qwen3_next", .stages = 4, .options = options});
}

// Each micro-batch is balanced by itself: what the routers of all stages choose for it is found out before it
// is trained.
TEST(PipelineStages, BalanceMicroBatches) {
  TrainerOptions options = cut(1);
  options.routers = {.balance_factor = 0.1};
  for (const bool adapters : {false, true}) {
    for (const auto& [stages, chunks] : {std::pair(2, 1), {4, 1}, {2, 2}}) {
      SCOPED_TRACE(fmt::format("adapters {}, {} stages of {} parts", adapters, stages, chunks));
      expect_one({.type = "qwen3_moe",
                  .stages = stages,
                  .chunks = chunks,
                  .options = options,
                  .adapters = adapters});
      if (chunks == 1)
        expect_one({.type = "qwen3_next", .stages = stages, .options = options, .adapters = adapters});
    }
    expect_one({.type = "qwen3_moe", .mesh = {.context = 2}, .options = options, .adapters = adapters});
    expect_one({.type = "qwen3_moe", .mesh = {.tensor = 2}, .options = options, .adapters = adapters});
  }
}

// Of the gradients in the order of the ranks and steps, all bytes.
std::string gradient_bytes(const Case& given) {
  std::vector<std::string> of_ranks(static_cast<size_t>(given.stages * given.mesh.size()));
  collectives::launch(
      "threads", {.ranks = given.stages * given.mesh.size(), .deadline = 60}, [&](Group& all) {
        const parallel::MeshGroups groups(all, given.mesh);
        const Run run(given, groups);
        std::string& bytes = of_ranks[static_cast<size_t>(all.rank())];
        for (uint32_t step = 0; step < kSteps; ++step) {
          run.step(rows_of_rank(rows_of(step, given.rows), run.update.rows.rank(), run.update.rows.size()));
          for (const PlacedTensor& gradient : run.optimizer->summed_gradients())
            bytes.append(static_cast<const char*>(gradient.own.raw()),
                         static_cast<size_t>(gradient.own.bytes()));
        }
      });
  std::string all;
  for (const std::string& bytes : of_ranks) all += bytes;
  return all;
}

// zb_h1: the gradients of weight matrices come later, and are the bits of 1f1b. A tied weight is counted
// once.
TEST(PipelineStages, ComputeTheGradientsOfWeightsLater) {
  TrainerOptions balanced = cut(1);
  balanced.routers = {.balance_factor = 0.1, .global_balance = true};
  TrainerOptions selective = cut(1);
  selective.checkpointing = Checkpointing::kSelective;
  for (Case given :
       {Case{.stages = 2, .options = cut(1), .rows = 7}, Case{.tied = true, .stages = 2, .options = cut(1)},
        Case{.tied = true, .stages = 4, .options = cut(1), .rows = 3},
        Case{.stages = 2, .mesh = {.shard = 2, .shard_level = 2}, .options = cut(1), .rows = 6},
        Case{.stages = 2, .mesh = {.tensor = 2}, .options = selective},
        Case{.type = "qwen3_moe", .stages = 3, .options = balanced},
        Case{.type = "qwen3_moe", .stages = 2, .mesh = {.expert = 2}, .options = balanced},
        Case{.type = "qwen3_next", .stages = 4, .options = cut(1)}}) {
    SCOPED_TRACE(fmt::format("{}, {} stages, tied {}, {}", given.type, given.stages, given.tied,
                             to_string(given.mesh)));
    const std::string whole = gradient_bytes(given);
    given.options.pipeline = parallel::ScheduleKind::kZbH1;
    expect_one(given);
    EXPECT_TRUE(gradient_bytes(given) == whole);
  }
}

TEST(PipelineStages, AreMeshes) {
  const std::vector<Mesh> meshes{{.replicate = 2},
                                 {.shard = 2, .shard_level = 1},
                                 {.shard = 2, .shard_level = 2},
                                 {.shard = 2, .shard_level = 3},
                                 {.context = 2},
                                 {.tensor = 2}};
  for (const Mesh& mesh : meshes)
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, level {}, tied {}", to_string(mesh), mesh.shard_level, tied));
      expect_one({.tied = tied, .stages = 2, .mesh = mesh, .options = cut(1)});
    }
  SCOPED_TRACE("experts");
  TrainerOptions options = cut(1);
  options.routers = {.balance_factor = 0.1, .global_balance = true};
  expect_one({.type = "qwen3_moe", .mesh = {.expert = 2}, .options = options});
}

// Copies of a tied head's weight and of the embedding are apart, as on one rank.
TEST(PipelineStages, TrainModulesInFull) {
  for (const bool tied : {false, true})
    for (const Mesh& mesh : {Mesh{}, Mesh{.tensor = 2}, Mesh{.replicate = 2}})
      expect_one({.tied = tied,
                  .stages = 2,
                  .mesh = mesh,
                  .options = cut(1),
                  .adapters = true,
                  .modules_to_save = {"embed_tokens", "lm_head", "norm"}});
}

TEST(PipelineStages, TrainAdapters) {
  for (const bool tied : {false, true}) {
    expect_one({.tied = tied, .stages = 2, .options = cut(1), .adapters = true});
    expect_one({.type = "qwen3_moe",
                .tied = tied,
                .stages = 3,
                .mesh = {.tensor = 2},
                .options = cut(1),
                .adapters = true});
  }
}

// The number of backward passes that each rank computes in one update of a case.
std::vector<int64_t> backward_passes(const Case& given) {
  std::vector<int64_t> counts(static_cast<size_t>(given.stages));
  collectives::launch("threads", {.ranks = given.stages, .deadline = 60}, [&](Group& all) {
    const parallel::MeshGroups groups(all, {});
    const Run run(given, groups);
    trace::start();
    run.step(rows_of(0, given.rows));
    for (const trace::Event& event : trace::stop())
      counts[static_cast<size_t>(all.rank())] += event.name == "backward" ? 1 : 0;
  });
  return counts;
}

// Adapters of some layers: stages before them compute no gradient, and none is sent to them.
TEST(PipelineStages, HaveNoBackwardPassWhereNothingIsTrained) {
  Case given{.stages = 4, .options = cut(1), .adapters = true};
  const std::vector<std::pair<const char*, std::vector<int64_t>>> cases{
      {R"(.*\.layers\.3\..*_proj)", {0, 0, 0, 5}},
      {R"(.*\.layers\.2\..*_proj)", {0, 0, 5, 5}},
      {R"(.*\.layers\.0\..*_proj)", {5, 5, 5, 5}},
      {R"(.*\.layers\.[13]\..*q_proj)", {0, 5, 5, 5}},
      {R"(lm_head)", {0, 0, 0, 5}},
      {R"(.*embed_tokens)", {5, 5, 5, 5}}};
  for (const auto& [adapted, passes] : cases) {
    SCOPED_TRACE(adapted);
    given.adapted = adapted;
    EXPECT_EQ(backward_passes(given), passes);
    expect_one(given);
  }
  // Part 2 of four is the first stage's second.
  given.stages = given.chunks = 2;
  given.adapted = R"(.*\.layers\.2\..*_proj)";
  EXPECT_EQ(backward_passes(given), (std::vector<int64_t>{5, 5}));
  expect_one(given);
}

}  // namespace
}  // namespace temper::training
