// A critic on ranks that divide it learns what one rank's does: values, gradients before clipping, weights.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "collectives/launch.h"
#include "models/adapter.h"
#include "parallel/mesh_groups.h"
#include "parallel/model_parts.h"
#include "recipes/learner/whole_elements_test_support.h"
#include "tests/support/answer_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"
#include "training/objectives/gather_rows.h"
#include "training/objectives/value_learning.h"

namespace temper::recipes {
namespace {

using collectives::Group;
using data::PackedRow;

constexpr int kCriticUpdates = 3;
constexpr double kCriticTolerance = 5e-5;

// Experts, widths and heads that ranks divide, and fewer heads of keys than four ranks.
Json mixture() {
  Json config = tiny_config("qwen3_moe");
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"num_experts", 8}, {"num_attention_heads", 8}, {"num_key_value_heads", 2}})
    config.set(key, value);
  return config;
}

std::vector<PackedRow> all_rows() {
  std::vector<PackedRow> rows;
  int token = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    rows.push_back(answer_row(i, {{3 + i % 4, {{4, true}, {1 + i, true}}}, {2, {{3, true}}}}, i % 2 == 0));
    PackedRow& row = rows.back();
    for (int64_t target = 0; target < row.num_targets(); ++target) {
      row.sampled.values.push_back(0.4f * std::sin(1.3f * static_cast<float>(++token)));
      row.sampled.returns.push_back(0.8f * std::cos(0.7f * static_cast<float>(token)));
    }
  }
  return rows;
}

// What a run comes to, and values by row.
struct Found {
  std::vector<double> losses, norms;
  std::vector<std::vector<PlacedTensor>> tensors;  // of each update: gradients, then weights
  std::vector<training::TokenValues> values;       // before each update, of the rank's rows
};

// What is trained of it besides the head.
enum class Trained { kAll, kLinears, kExpertsToo };

// One rank's critic.
struct Critics {
  Critics(Group& ranks, const Mesh& mesh, Trained what, int64_t micro_batch_tokens)
      : groups(ranks, mesh), tokens(micro_batch_tokens) {
    models::BuildOptions build;
    build.dtype = DType::kF32;
    build.ops = ops::all_eager();
    build.purpose = models::Purpose::kTraining;
    build.gives_values = true;
    layers::DecoderConfig architecture = models::configure(mixture(), "tiny");
    architecture.gives_values = true;
    build.ranks = parallel::with_parts(groups.model(), architecture);
    model = models::build_model(mixture(), "tiny", build);
    layers::ParameterStore& parameters = model->decoder.parameters();
    parameters.initialize(3, 0.2);
    Tensor head = Tensor::empty({1, 32}, DType::kF32);
    for (int64_t i = 0; i < 32; ++i) head.data<float>()[i] = 0.2f * std::sin(static_cast<float>(i));
    parameters.set_rows("head.weight", 0, head);
    if (what != Trained::kAll) {
      LoraConfig lora{.rank = 4, .alpha = 8, .modules_to_save = {"score"}};
      if (what == Trained::kExpertsToo)
        lora.targets.names = {"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
      adapter = models::new_adapter(*model, lora, 1, "");
    }
    // Far above the rounding of gradients: AdamW makes whole steps of small ones.
    optimizer = std::make_unique<optimizers::AdamW>(trained(), model->decoder.ops(),
                                                    optimizers::AdamWOptions{.eps = 1e-3}, groups.sharing());
    objective = std::make_shared<training::ValueLearning>(model->decoder, training::ValueOptions{0.2});
  }
  layers::ParameterStore& trained() { return adapter ? adapter->parameters() : model->decoder.parameters(); }
  Found learn() {
    Found found;
    const std::vector<PackedRow> rows =
        training::rows_of_rank(all_rows(), groups.rows().rank(), groups.rows().size());
    const training::TrainerOptions options{.max_grad_norm = 0.5, .micro_batch_tokens = tokens};
    std::optional<training::Trainer> trainer;
    if (!adapter) trainer.emplace(model->decoder, *optimizer, options, objective, groups.update());
    training::AdapterTrainer adapters(model->decoder, options, groups.update());
    for (int i = 0; i < kCriticUpdates; ++i) {
      found.values.push_back(training::token_values(model->decoder, adapter.get(), rows, tokens));
      training::StepResult result = trainer ? trainer->step(rows, 3e-3)
                                            : adapters
                                                  .begin({{.adapter = adapter.get(),
                                                           .optimizer = optimizer.get(),
                                                           .rows = &rows,
                                                           .lr = 3e-3,
                                                           .objective = objective.get()}})
                                                  .front()
                                                  .wait();
      found.losses.push_back(result.loss);
      found.norms.push_back(result.grad_norm);
      for (const std::vector<PlacedTensor>& some : {optimizer->summed_gradients(), trained().placed()})
        found.tensors.push_back(copies_of(some));
    }
    return found;
  }

  parallel::MeshGroups groups;
  int64_t tokens;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<layers::Adapter> adapter;
  std::unique_ptr<optimizers::AdamW> optimizer;
  std::shared_ptr<const training::Objective> objective;
};

struct Expected {
  Found found;
  std::vector<WholeElements> tensors;
};

Expected of_one_rank(Trained what) {
  Expected all;
  Critics one(collectives::alone(), {}, what, 0);
  all.found = one.learn();
  for (const std::vector<PlacedTensor>& update : all.found.tensors)
    all.tensors.push_back(elements_of(update));
  all.found.tensors.clear();
  return all;
}

void expect_critic_course(const Found& found, const Expected& expected, const Group& data) {
  const auto size = static_cast<size_t>(data.size());
  for (size_t i = 0; i < kCriticUpdates; ++i) {
    EXPECT_NEAR(found.losses[i], expected.found.losses[i], kCriticTolerance * expected.found.losses[i]) << i;
    EXPECT_NEAR(found.norms[i], expected.found.norms[i], kCriticTolerance * expected.found.norms[i]) << i;
    SCOPED_TRACE(i);
    expect_elements(found.tensors[2 * i], expected.tensors[2 * i], kCriticTolerance);
    expect_elements(found.tensors[2 * i + 1], expected.tensors[2 * i + 1], kCriticTolerance);
    // The rank's rows follow one another among those of all.
    const std::vector<float>& before = found.values[i].before;
    size_t first = 0;
    const std::vector<PackedRow> rows = all_rows();
    for (int rank = 0; rank < data.rank(); ++rank)
      for (const PackedRow& row : training::rows_of_rank(rows, rank, static_cast<int>(size)))
        first += static_cast<size_t>(row.num_targets());
    ASSERT_LE(first + before.size(), expected.found.values[i].before.size());
    for (size_t k = 0; k < before.size(); ++k) {
      EXPECT_NEAR(before[k], expected.found.values[i].before[first + k], kCriticTolerance);
      EXPECT_NEAR(found.values[i].behind[k], expected.found.values[i].behind[first + k], kCriticTolerance);
    }
  }
}

TEST(CriticMeshes, LearnWhatOneRankDoes) {
  const std::pair<int, Mesh> meshes[] = {{1, {.tensor = 2}},
                                         {1, {.tensor = 4, .sequence = false}},
                                         {1, {.expert = 2}},
                                         {1, {.shard = 2, .shard_level = 3}},
                                         {1, {.shard = 2, .tensor = 2, .shard_level = 3}},
                                         {1, {.tensor = 2, .expert = 2}},
                                         {1, {.replicate = 2, .tensor = 2}},
                                         {1, {.shard = 2, .expert = 2, .shard_level = 3}},
                                         {2, {}},
                                         {2, {.context = 2}},
                                         {2, {.tensor = 2}},
                                         {2, {.expert = 2}},
                                         {2, {.shard = 2, .shard_level = 3}}};
  for (const Trained what : {Trained::kAll, Trained::kLinears, Trained::kExpertsToo}) {
    const Expected expected = of_one_rank(what);
    EXPECT_GT(std::abs(expected.found.losses[2] - expected.found.losses[0]), 1e-3);
    for (const auto& [stages, mesh] : meshes) {
      SCOPED_TRACE(fmt::format("{} stages, {}, level {}, way {}", stages, to_string(mesh), mesh.shard_level,
                               static_cast<int>(what)));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = stages * mesh.size(), .deadline = 120}, [&](Group& ranks) {
        Critics critics(ranks, mesh, what, 24);
        const Found found = critics.learn();
        const std::lock_guard lock(mutex);
        expect_critic_course(found, expected, critics.groups.rows());
      });
    }
  }
}

}  // namespace
}  // namespace temper::recipes
