// What training does with the routers of mixtures: the load balancing loss, biases, loads, and what they do
// when layers are computed again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "models/adapter.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"

namespace temper::training {
namespace {

using data::PackedRow;
using op_testing::Doubles;

const std::vector<PackedRow> kRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20}),
                                   test_row(4, {3, 3, 5})};

TinyModel fast(const char* type, bool experts = false) {
  TinyModel tiny{.type = type, .experts = experts};
  tiny.ops = {};
  return tiny;
}

struct Bench {
  explicit Bench(const TrainerOptions& options = {}, const TinyModel& tiny = fast("qwen3_moe"))
      : model(tiny_model(tiny)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, options) {}

  Doubles of(const std::string& name, bool gradient) const {
    const Parameter& parameter = model->decoder.parameters().at(name);
    return op_testing::values_of(gradient ? parameter.grad->grad() : parameter.value);
  }
  // Of all that is trained.
  Doubles all(bool gradients) const {
    Doubles found;
    const auto& parameters = model->decoder.parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      if (!parameters.spec(i).buffer)
        for (const double value : of(parameters.spec(i).name, gradients)) found.push_back(value);
    return found;
  }
  void set(const std::string& name, float value) {
    const Tensor& tensor = model->decoder.parameters().at(name).value;
    std::fill_n(tensor.data<float>(), tensor.numel(), value);
  }

  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  Trainer trainer;
};

TrainerOptions balanced(double factor, bool global, int64_t micro_batch_tokens = 0) {
  TrainerOptions options{.micro_batch_tokens = micro_batch_tokens};
  options.routers = {.balance_factor = factor, .global_balance = global};
  return options;
}

constexpr const char* kGate = "layers.0.mlp.gate.weight";

// What the load balancing loss adds to gradients: the difference of a step with it and one without.
Doubles added(const TrainerOptions& options, const std::string& name, double* loss = nullptr) {
  Bench with(options), without({.micro_batch_tokens = options.micro_batch_tokens});
  const StepResult found = with.trainer.step(kRows, 0);
  without.trainer.step(kRows, 0);
  if (loss != nullptr) *loss = found.balance_loss;
  Doubles difference = with.of(name, true);
  const Doubles plain = without.of(name, true);
  for (size_t i = 0; i < difference.size(); ++i) difference[i] -= plain[i];
  return difference;
}

double largest(const Doubles& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::fabs(value));
  return most;
}

// The routers' own gradient, and that of what is below them, is in proportion to the factor.
TEST(Routers, TheLoadBalancingLossHasAGradient) {
  for (const char* name : {kGate, "layers.0.attention.qkv.weight", "layers.1.mlp.gate.weight"}) {
    const Doubles once = added(balanced(0.5, false), name);
    Doubles twice = added(balanced(1, false), name);
    EXPECT_GT(largest(twice), 1e-3) << name;
    for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-6) << name;
  }
}

// Neither loads of the whole update nor moved biases keep a step from being captured.
TEST(Routers, NeedNoCpuInAStep) {
  TrainerOptions options = balanced(1, true, 16);
  options.routers.bias_rate = 0.25;
  const Bench bench(options, fast("deepseek_v3", true));
  EXPECT_EQ(bench.trainer.graphs().why_not, "there are no graphs on the CPU");
}

// With loads of the whole update nothing depends on the cut.
TEST(Routers, TheGlobalLossDoesNotDependOnMicroBatches) {
  double expected_loss = 0;
  const Doubles expected = added(balanced(1, true), kGate, &expected_loss);
  EXPECT_NEAR(expected_loss, 2, 1);  // about top_k where it is balanced
  for (const int64_t tokens : {1, 16, 30}) {
    double loss = 0;
    const Doubles found = added(balanced(1, true, tokens), kGate, &loss);
    EXPECT_NEAR(loss, expected_loss, 1e-5);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * largest(expected));
  }
}

// The loss of micro-batches is their mean by tokens: the factor counts once, however many there are.
TEST(Routers, TheLossOfMicroBatchesIsTheirMean) {
  double whole = 0, cut = 0;
  added(balanced(1, false), kGate, &whole);
  added(balanced(1, false, 1), kGate, &cut);
  double mean = 0, tokens = 0;
  for (const PackedRow& row : kRows) {
    Bench one(balanced(1, false));
    const StepResult found = one.trainer.step({row}, 0);
    mean += found.balance_loss * static_cast<double>(row.size());
    tokens += static_cast<double>(row.size());
  }
  EXPECT_NEAR(cut, mean / tokens, 1e-5);
  EXPECT_GT(std::fabs(cut - whole), 1e-3);
}

TEST(Routers, LoadsAreOfTrainingTokensAlone) {
  int64_t tokens = 0;
  for (const PackedRow& row : kRows) tokens += row.size();
  for (const Checkpointing checkpointing :
       {Checkpointing::kNone, Checkpointing::kSelective, Checkpointing::kFull})
    for (const int64_t micro_batch : {0, 1}) {
      Bench bench({.micro_batch_tokens = micro_batch, .checkpointing = checkpointing});
      bench.trainer.evaluate(kRows);
      const StepResult found = bench.trainer.step(kRows, 1e-3);
      ASSERT_EQ(found.routers.size(), 2u);
      for (const RouterLoad& load : found.routers) {
        EXPECT_EQ(load.tokens, tokens);
        EXPECT_EQ(load.not_finite, 0);
        EXPECT_GE(load.largest_over_mean(), 1);
        EXPECT_GT(load.entropy, 0);
        EXPECT_LT(load.entropy, std::log(6.0));
      }
      EXPECT_EQ(found.routers[1].layer, 1u);
    }
}

// Layers that are computed again take the same way, also where every expert is as good.
TEST(Routers, RecomputedLayersChooseTheSameExperts) {
  for (const bool ties : {false, true}) {
    Bench kept(balanced(0.1, false)), again([] {
      TrainerOptions options = balanced(0.1, false);
      options.checkpointing = Checkpointing::kFull;
      return options;
    }());
    if (ties)
      for (Bench* bench : {&kept, &again}) bench->set(kGate, 0);
    for (int step = 0; step < 3; ++step) {
      const StepResult expected = kept.trainer.step(kRows, 1e-3), found = again.trainer.step(kRows, 1e-3);
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.balance_loss, expected.balance_loss);
      EXPECT_EQ(found.grad_norm, expected.grad_norm);
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(found.routers[i].counts, expected.routers[i].counts);
    }
    EXPECT_EQ(again.all(false), kept.all(false));
  }
}

// In a pass that is given its experts, routers choose none (router replay).
TEST(Routers, GivenExpertsAreUsed) {
  const auto model = tiny_model(fast("qwen3_moe"));
  const layers::DecoderInput input = layers::make_input(kRows[0].ids, std::vector<int32_t>{9});
  const auto run = [&](const std::shared_ptr<layers::RouterTrace>& trace) {
    Tape tape(false);
    layers::Decoder::Options options;
    options.routers = trace;
    return op_testing::values_of(model->decoder.forward(tape, input, options).value);
  };
  auto chosen = std::make_shared<layers::RouterTrace>(), other = std::make_shared<layers::RouterTrace>();
  const Doubles expected = run(chosen);
  EXPECT_EQ(run(chosen), expected);
  other->routers = chosen->routers;
  other->routers[0].ids = chosen->routers[0].ids.clone();
  for (int32_t& id : other->routers[0].ids.values<int32_t>()) id = (id + 1) % 6;
  const Tensor before = other->routers[0].ids.clone();
  EXPECT_NE(run(other), expected);
  EXPECT_EQ(op_testing::values_of(other->routers[0].ids), op_testing::values_of(before));
}

TEST(Routers, BiasesMoveOnceAStepByCountsOfTrainingTokens) {
  const std::string name = "layers.1.mlp.gate.correction_bias";
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull})
    for (const int64_t micro_batch : {0, 1}) {
      TrainerOptions options{.micro_batch_tokens = micro_batch, .checkpointing = checkpointing};
      options.routers.bias_rate = 0.25;
      Bench bench(options, fast("deepseek_v3", true));
      EXPECT_EQ(bench.of(name, false), Doubles(8));
      bench.trainer.evaluate(kRows);
      EXPECT_EQ(bench.of(name, false), Doubles(8));
      const StepResult found = bench.trainer.step(kRows, 0);
      ASSERT_EQ(found.routers.size(), 1u);
      const std::vector<int64_t>& counts = found.routers[0].counts;
      double mean = 0;
      for (const int64_t count : counts) mean += static_cast<double>(count) / 8;
      const Doubles biases = bench.of(name, false);
      for (size_t e = 0; e < 8; ++e) {
        const auto count = static_cast<double>(counts[e]);
        EXPECT_EQ(biases[e], count > mean ? -0.25 : count < mean ? 0.25 : 0) << e;
      }
      // They decide on the next step's choice.
      EXPECT_NE(bench.trainer.step(kRows, 0).routers[0].counts, counts);
    }
}

TEST(Routers, BiasesStayWhereAStepChangesNothing) {
  TrainerOptions options;
  options.routers.bias_rate = 0.25;
  Bench bench(options, fast("deepseek_v3", true));
  bench.set("norm.weight", std::numeric_limits<float>::quiet_NaN());  // behind all routers
  const Doubles before = bench.of("layers.0.mlp.down.weight", false);
  EXPECT_THROW(bench.trainer.step(kRows, 1e-2), Error);
  EXPECT_EQ(bench.of("layers.0.mlp.down.weight", false), before);
  EXPECT_EQ(bench.of("layers.1.mlp.gate.correction_bias", false), Doubles(8));
}

TEST(Routers, BiasesStayWithoutARate) {
  Bench bench({}, fast("deepseek_v3", true));
  bench.trainer.step(kRows, 1e-2);
  EXPECT_EQ(bench.of("layers.1.mlp.gate.correction_bias", false), Doubles(8));
}

TEST(Routers, WhatIsNoNumberStopsTheStepAndNamesTheLayer) {
  Bench bench;
  bench.model->decoder.parameters().at("layers.1.mlp.gate.weight").value.data<float>()[0] =
      std::numeric_limits<float>::quiet_NaN();
  const Doubles before = bench.of("layers.0.attention.qkv.weight", false);
  try {
    bench.trainer.step(kRows, 1e-2);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("the router of layer 1 had NaN or infinite logits for 56 of 56 tokens"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(bench.of("layers.0.attention.qkv.weight", false), before);
}

// What each of two adapters tells of its tokens, and learns, is what it would alone.
TEST(Routers, AdaptersInOnePassAreDistinguished) {
  const auto model = tiny_model(fast("qwen3_moe"));
  const LoraConfig linears{.rank = 2, .alpha = 2};
  LoraConfig all = linears;
  all.parameters = {"experts.gate_up_proj", "experts.down_proj", "gate.weight"};
  const std::vector<std::vector<PackedRow>> rows{{kRows[0], kRows[1]}, {kRows[2]}};
  const auto learn = [&](const LoraConfig& config, const std::vector<size_t>& which,
                         Checkpointing checkpointing) {
    std::vector<std::unique_ptr<layers::Adapter>> adapters;
    std::vector<std::unique_ptr<optimizers::AdamW>> optimizers;
    std::vector<AdapterShare> shares;
    for (const size_t i : which) {
      adapters.push_back(models::new_adapter(*model, config, i + 1, ""));
      optimizers.push_back(std::make_unique<optimizers::AdamW>(
          adapters.back()->parameters(), model->decoder.ops(), optimizers::AdamWOptions{}));
      shares.push_back({adapters.back().get(), optimizers.back().get(), &rows[i], 1e-2, i, 1});
    }
    TrainerOptions options = balanced(0.5, false);
    options.checkpointing = checkpointing;
    AdapterTrainer trainer(model->decoder, options);
    std::vector<StepResult> results;
    for (int step = 0; step < 3; ++step) {
      results.clear();
      for (PendingStep& pending : trainer.begin(shares)) results.push_back(pending.wait());
    }
    return results;
  };
  using Checked = std::pair<const LoraConfig*, Checkpointing>;
  for (const auto& [config, checkpointing] :
       {Checked(&linears, Checkpointing::kNone), Checked(&linears, Checkpointing::kFull),
        Checked(&all, Checkpointing::kNone), Checked(&all, Checkpointing::kFull)}) {
    const auto together = learn(*config, {0, 1}, checkpointing);
    for (const size_t i : {0, 1}) {
      const StepResult alone = learn(*config, {i}, checkpointing)[0];
      EXPECT_NEAR(together[i].loss, alone.loss, 1e-5 * alone.loss);
      EXPECT_NEAR(together[i].balance_loss, alone.balance_loss, 1e-5);
      EXPECT_NEAR(together[i].grad_norm, alone.grad_norm, 1e-4 * alone.grad_norm);
      for (size_t layer = 0; layer < 2; ++layer)
        EXPECT_EQ(together[i].routers[layer].counts, alone.routers[layer].counts);
    }
  }
}

// An expert that gets no token keeps moments of zero, and a state that was saved continues bit for bit.
TEST(Routers, IdleExpertsHaveStatesFromTheStart) {
  Bench straight, resumed;
  for (Bench* bench : {&straight, &resumed}) {  // every token takes the first two experts
    const Tensor& gate = bench->model->decoder.parameters().at(kGate).value;
    std::fill_n(gate.data<float>(), gate.numel(), 0.f);
  }
  for (int step = 0; step < 50; ++step) straight.trainer.step(kRows, 0);
  for (int step = 0; step < 25; ++step) resumed.trainer.step(kRows, 0);
  Bench other;
  const auto from = resumed.optimizer.state(), to = other.optimizer.state();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    to[i].own.copy_from(from[i].own);
  }
  other.optimizer.restored(25);
  for (int step = 0; step < 25; ++step) other.trainer.step(kRows, 0);
  straight.trainer.step(kRows, 1e-2);
  other.trainer.step(kRows, 1e-2);
  EXPECT_EQ(other.all(false), straight.all(false));
}

}  // namespace
}  // namespace temper::training
