// What a run changes of routers, whatever their family.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/gradients_test_support.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using op_testing::Doubles;

constexpr const char* kRouter = "layers.0.mlp.gate.weight";

// In turn, every expert gets as many tokens, and gradients are those of a pass that was given these experts.
TEST(RouterOptions, ForcedBalanceGivesExpertsTheirTokensInTurn) {
  for (const bool checkpointed : {false, true}) {
    TinyModel tiny{.type = "qwen3_moe", .ops = {}};
    tiny.routers.balanced = true;
    TrainerOptions options;
    options.checkpointing = checkpointed ? Checkpointing::kFull : Checkpointing::kNone;
    const auto model = tiny_model(tiny);
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
    Trainer trainer(model->decoder, optimizer, options);
    const std::vector<data::PackedRow> rows{test_row(1, {9}), test_row(2, {4, 5})};  // 18 tokens, 36 choices
    for (const RouterLoad& load : trainer.step(rows, 0).routers)
      EXPECT_EQ(load.counts, std::vector<int64_t>(6, 6));
    const Doubles gate = op_testing::values_of(model->decoder.parameters().at(kRouter).grad->grad());
    EXPECT_TRUE(std::any_of(gate.begin(), gate.end(), [](double value) { return value != 0; }));
  }
  const data::PackedRow row = test_row(1, {9});
  const auto gradients = [&](bool balanced) {
    TinyModel tiny{.type = "qwen3_moe", .ops = {}};
    tiny.routers.balanced = balanced;
    const auto model = tiny_model(tiny);
    model->decoder.parameters().enable_gradients(DType::kF32);
    auto trace = std::make_shared<layers::RouterTrace>();
    trace->routers.resize(2);
    std::vector<int32_t> turn;
    for (int32_t i = 0; i < 9 * 2; ++i) turn.push_back(i % 6);
    if (!balanced)
      for (auto& router : trace->routers) router.ids = Tensor::from(turn).reshape({9, 2});
    Tape tape;
    layers::Decoder::Options options;
    options.routers = trace;
    const Var hidden =
        model->decoder.forward(tape, layers::make_input(row.ids, std::vector<int32_t>{9}), options);
    const Tensor targets = Tensor::from(row.ids);
    tape.backward(model->decoder.loss(tape, hidden, targets, {1.f, 0.f}).loss);
    return gradients_of(model->decoder.parameters());
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

struct Chosen {
  Tensor read, gate;  // what the first router reads and multiplies with
  std::vector<int32_t> ids;
  Doubles sums;
};

// Of a model whose mixers and experts add nothing, so that the last norm gives what routers read.
Chosen first_choice(bool float32, const char* kernels) {
  TinyModel tiny{.type = "qwen3_moe", .dtype = DType::kBF16};
  tiny.ops = {.fallback = kernels};
  tiny.routers.float32 = float32;
  const auto model = tiny_model(tiny);
  const auto& parameters = model->decoder.parameters();
  for (const char* name : {"attention.output.weight", "mlp.experts.down.weight"})
    for (const int layer : {0, 1}) {
      const Tensor& value = parameters.at(fmt::format("layers.{}.{}", layer, name)).value;
      value.copy_from(Tensor::zeros(value.shape(), value.dtype()));
    }
  const auto trace = model->decoder.watch_routers();
  std::vector<Tensor> states;
  Tape tape(false);
  layers::Decoder::Options options;
  options.routers = trace;
  options.hidden_states = &states;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 48; ++i) ids.push_back(i);
  model->decoder.forward(tape, layers::make_input(ids, std::vector<int32_t>{48}), options);
  const layers::RouterTrace::Router& router = trace->routers[0];
  const auto chosen = router.ids.values<int32_t>();
  return {states.back(),
          parameters.at(kRouter).value,
          {chosen.begin(), chosen.end()},
          op_testing::values_of(router.parts[0].sums.value)};
}

// Of a model in bfloat16: the choice, and the probabilities, are those of products in double precision.
TEST(RouterOptions, MayComputeInFloat32) {
  for (const char* kernels : {"eager", ""}) {
    const Chosen wide = first_choice(true, kernels), narrow = first_choice(false, kernels);
    const Doubles x = op_testing::values_of(wide.read), gate = op_testing::values_of(wide.gate);
    Doubles sums(6);
    for (size_t t = 0; t < 48; ++t) {
      std::vector<std::pair<double, int32_t>> scores;
      double sum = 0;
      for (size_t e = 0; e < 6; ++e) {
        double logit = 0;
        for (size_t i = 0; i < 32; ++i) logit += x[t * 32 + i] * gate[e * 32 + i];
        scores.emplace_back(-std::exp(logit), static_cast<int32_t>(e));
        sum += std::exp(logit);
      }
      for (size_t e = 0; e < 6; ++e) sums[e] -= scores[e].first / sum;
      std::sort(scores.begin(), scores.end());
      for (size_t j = 0; j < 2; ++j) EXPECT_EQ(wide.ids[t * 2 + j], scores[j].second) << t;
    }
    double rounded = 0;
    for (size_t e = 0; e < 6; ++e) {
      EXPECT_NEAR(wide.sums[e], sums[e], 1e-5);
      rounded = std::max(rounded, std::fabs(narrow.sums[e] - sums[e]));
    }
    EXPECT_GT(rounded, 1e-4);  // the default multiplies as the model does
  }
}

}  // namespace
}  // namespace temper::training
