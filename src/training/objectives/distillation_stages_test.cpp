// A teacher in memory where stages of a pipeline have parts of it and of the student: losses, what is
// reported of tokens, work and gradient norms are those of one rank, and evaluations, too.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "models/adapter.h"
#include "parallel/mesh_groups.h"
#include "tests/support/packed_rows.h"
#include "tests/support/ranked_model.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"
#include "training/objectives/distillation.h"
#include "training/objectives/gather_rows.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using collectives::Group;

constexpr int kDistilledUpdates = 2;
constexpr int64_t kPassTokens = 16;
constexpr double kDistilledRate = 5e-4;

struct StagedDistillation {
  const char* student = "qwen3";
  int64_t top_k = 0;
  bool adapter = false;  // whose model teaches
};

struct DistilledCourse {
  std::vector<StepResult> steps;
  EvalResult evaluation;
};

std::unique_ptr<models::Model> staged_model(const parallel::MeshGroups& groups, int chunks, const char* type,
                                            uint64_t seed, double deviation) {
  Json config = tiny_config(type);
  config.set("num_hidden_layers", 4);
  return ranked_model(groups, {.config = config, .chunks = chunks, .seed = seed, .deviation = deviation});
}

DistilledCourse distilled(Group& all, const Mesh& mesh, int chunks, const StagedDistillation& of) {
  const parallel::MeshGroups groups(all, mesh);
  const parallel::UpdateRanks ranks = groups.update();
  const auto model = staged_model(groups, chunks, of.student, 7, 0.1),
             other = staged_model(groups, chunks, "llama", 3, 0.2);
  const layers::Decoder& teacher = of.adapter ? model->decoder : other->decoder;
  const auto objective = std::make_shared<Distill>(
      model->decoder, teacher, losses::Distillation{losses::Divergence::kForward, 1.3, 0.5, 0.2}, kPassTokens,
      of.top_k);
  TrainerOptions options{.micro_batch_tokens = kPassTokens};
  options.pipeline = parallel::usual_kind(chunks);
  std::unique_ptr<layers::Adapter> adapter;
  if (of.adapter) {
    adapter = models::new_adapter(*model, {.rank = 4}, 1, "");
    adapter->parameters().initialize(5, 0.3);  // its product is no longer nothing
  }
  optimizers::AdamWOptions damped;
  damped.eps = 1e-2;
  optimizers::AdamW optimizer(adapter ? adapter->parameters() : model->decoder.parameters(),
                              model->decoder.ops(), damped, groups.sharing());
  std::optional<Trainer> trainer;
  if (!adapter) trainer.emplace(model->decoder, optimizer, options, objective, ranks);
  AdapterTrainer adapters(model->decoder, options, ranks);
  // Of an evaluation more passes than are read ahead at once.
  const auto rows_of = [&](int64_t count) {
    std::vector<data::PackedRow> rows;
    for (int64_t i = 0; i < count; ++i)
      rows.push_back(test_row(static_cast<uint32_t>(i), {4 + i % 7, 3 + i % 5}));
    return rows_of_rank(rows, ranks.rows.rank(), ranks.rows.size());
  };
  const std::vector<data::PackedRow> rows = rows_of(5);
  DistilledCourse course;
  for (int step = 0; step < kDistilledUpdates; ++step) {
    if (trainer) {
      course.steps.push_back(trainer->step(rows, kDistilledRate));
      continue;
    }
    course.steps.push_back(adapters
                               .begin({{.adapter = adapter.get(),
                                        .optimizer = &optimizer,
                                        .rows = &rows,
                                        .lr = kDistilledRate,
                                        .objective = objective.get()}})
                               .front()
                               .wait());
  }
  course.evaluation = objective->evaluate(rows_of(18), adapter.get(), ranks);
  return course;
}

void expect_distillation(const DistillationResult& found, const DistillationResult& expected) {
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_NEAR(found.divergence, expected.divergence, 1e-5);
  EXPECT_NEAR(found.cross_entropy, expected.cross_entropy, 1e-5);
  EXPECT_NEAR(found.teacher_entropy, expected.teacher_entropy, 1e-5);
  EXPECT_NEAR(found.agreement, expected.agreement, 1e-9);
}

void expect_distilled(const DistilledCourse& found, const DistilledCourse& expected) {
  for (size_t step = 0; step < expected.steps.size(); ++step) {
    SCOPED_TRACE(step);
    const StepResult &own = found.steps[step], &one = expected.steps[step];
    EXPECT_NEAR(own.loss, one.loss, 1e-6 * std::abs(one.loss));
    EXPECT_NEAR(own.grad_norm, one.grad_norm, 1e-5 * one.grad_norm);
    EXPECT_EQ(own.tokens, one.tokens);
    EXPECT_NEAR(own.flops, one.flops, 1e-9 * one.flops);
    expect_distillation(own.distillation.value(), one.distillation.value());
  }
  EXPECT_NEAR(found.evaluation.loss, expected.evaluation.loss, 1e-6 * std::abs(expected.evaluation.loss));
  EXPECT_EQ(found.evaluation.target_tokens, expected.evaluation.target_tokens);
  expect_distillation(found.evaluation.distillation.value(), expected.evaluation.distillation.value());
}

TEST(DistillationStages, LearnWhatOneRankLearns) {
  struct Case {
    int stages, chunks;
    Mesh mesh;
  };
  for (const StagedDistillation& of :
       {StagedDistillation{}, {"qwen3", 5}, {"qwen3", 0, true}, {"qwen3_moe"}}) {
    const DistilledCourse expected = distilled(collectives::alone(), {}, 1, of);
    for (const auto& [stages, chunks, mesh] : {Case{2, 1, {}},
                                               {2, 2, {}},
                                               {4, 1, {}},
                                               {2, 1, {.replicate = 2}},
                                               {2, 1, {.shard = 2, .shard_level = 3}},
                                               {2, 1, {.context = 2}},
                                               {2, 1, {.tensor = 2}}}) {
      SCOPED_TRACE(fmt::format("{} {}{}: {} stages of {} parts, {}", of.student, of.top_k,
                               of.adapter ? " adapter" : "", stages, chunks, to_string(mesh)));
      collectives::launch("threads", {.ranks = stages * mesh.size(), .deadline = 60},
                          [&](Group& all) { expect_distilled(distilled(all, mesh, chunks, of), expected); });
    }
  }
}

}  // namespace
}  // namespace temper::training
