// Experts on ranks of their own, where all tokens choose the same ones: a rank has no row, and takes part all
// the same.
#include <gtest/gtest.h>

#include <mutex>

#include "collectives/launch.h"
#include "models/model.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

struct Learned {
  double loss = 0, norm = 0;
  std::vector<float> gate, below;  // gradients of the router, and of what comes before it
};

std::vector<float> numbers_of(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

// Each of `ranks` has some of eight experts, and a row of its own.
Learned learn(collectives::Group& ranks, collectives::Group* expert, Checkpointing checkpointing) {
  Json config = tiny_config("qwen3_moe");
  config.set("num_experts", 8);
  models::BuildOptions build;
  build.dtype = DType::kF32;
  build.ops = ops::OpsConfig{};
  build.purpose = models::Purpose::kTraining;
  build.ranks = {.mesh = {.expert = ranks.size()}, .rank = ranks.rank(), .expert = expert};
  const auto model = models::build_model(config, "config.json", build);
  layers::ParameterStore& parameters = model->decoder.parameters();
  parameters.initialize(1, 0.05);
  // Equal logits: the first experts are chosen.
  for (const char* gate : {"layers.0.mlp.gate.weight", "layers.1.mlp.gate.weight"})
    parameters.at(gate).value.fill_zero();
  parameters.changed();
  optimizers::AdamW optimizer(parameters, model->decoder.ops(), {},
                              {.shard = nullptr, .replicate = nullptr, .tensor = nullptr, .expert = expert});
  Trainer trainer(
      model->decoder, optimizer,
      {.checkpointing = checkpointing, .routers = {.balance_factor = 0.1, .global_balance = true}}, nullptr,
      ranks);
  std::vector<data::PackedRow> rows;
  for (uint32_t row = 0; row < 8; ++row)
    if (ranks.is_alone() || static_cast<int>(row) * ranks.size() / 8 == ranks.rank())
      rows.push_back(test_row(row, {3 + row, 5}));
  const StepResult result = trainer.step(rows, 0);
  return {result.loss, result.grad_norm, numbers_of(parameters.at("layers.1.mlp.gate.weight").grad->grad()),
          numbers_of(parameters.at("layers.0.attention.qkv.weight").grad->grad())};
}

void expect_close(const std::vector<float>& found, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0) << what;
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5f * largest) << what;
}

TEST(DividedExperts, MayHaveNoTokenOnSomeRanks) {
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    Learned one;
    collectives::launch("local", {},
                        [&](collectives::Group& alone) { one = learn(alone, nullptr, checkpointing); });
    for (const int ranks : {2, 4, 8}) {
      std::mutex mutex;
      collectives::launch("threads", {.ranks = ranks, .deadline = 120}, [&](collectives::Group& group) {
        const Learned found = learn(group, &group, checkpointing);
        const std::lock_guard lock(mutex);
        EXPECT_NEAR(found.loss, one.loss, 1e-6 * one.loss);
        expect_close(found.gate, one.gate, "router");
        expect_close(found.below, one.below, "the layer below");
      });
    }
  }
}

}  // namespace
}  // namespace temper::training
