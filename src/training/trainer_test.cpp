#include "training/trainer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/threads/threads.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tiny_model.h"
#include "training/passes/flops.h"

namespace temper::training {
namespace {

using data::PackedRow;

const std::vector<PackedRow> kRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20}),
                                   test_row(4, {3, 3, 5})};

struct Bench {
  explicit Bench(const TrainerOptions& options = {}, const TinyModel& tiny = {},
                 const optimizers::AdamWOptions& adamw = {})
      : model(tiny_model(tiny)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), adamw),
        trainer(model->decoder, optimizer, options) {}
  std::vector<float> weights() const {
    std::vector<float> all;
    for (size_t i = 0; i < model->decoder.parameters().size(); ++i)
      for (const float value : model->decoder.parameters()[i].value.to(DType::kF32).values<float>())
        all.push_back(value);
    return all;
  }
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (size_t i = 0; i < model->decoder.parameters().size(); ++i)
      for (const float value : model->decoder.parameters()[i].grad->grad().values<float>())
        all.push_back(value);
    return all;
  }
  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  Trainer trainer;
};

TEST(Trainer, TheMicroBatchSplitDoesNotChangeTheStep) {
  Bench whole;
  const StepResult expected = whole.trainer.step(kRows, 1e-3);
  EXPECT_GT(expected.grad_norm, 0.1);
  for (const int64_t tokens : {1, 16, 30}) {
    Bench cut({.micro_batch_tokens = tokens});
    const StepResult found = cut.trainer.step(kRows, 1e-3);
    EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss) << tokens;
    EXPECT_NEAR(found.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm) << tokens;
    EXPECT_EQ(found.target_tokens, expected.target_tokens);
    EXPECT_DOUBLE_EQ(found.flops, expected.flops);
  }
}

TEST(Trainer, PackedDocumentsTrainAsSeparateRows) {
  const PackedRow packed = test_row(5, {7, 11, 2});
  std::vector<PackedRow> separate;
  size_t start = 0;
  for (const int64_t length : packed.document_lengths) {
    const auto end = static_cast<std::ptrdiff_t>(start) + length;
    separate.push_back(
        {{packed.ids.begin() + static_cast<std::ptrdiff_t>(start), packed.ids.begin() + end},
         {packed.targets.begin() + static_cast<std::ptrdiff_t>(start), packed.targets.begin() + end},
         {length}});
    start = static_cast<size_t>(end);
  }
  Bench one, many({.micro_batch_tokens = 1});
  const StepResult a = one.trainer.step({packed}, 1e-3), b = many.trainer.step(separate, 1e-3);
  EXPECT_NEAR(a.loss, b.loss, 1e-6 * b.loss);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * b.grad_norm);
}

TEST(Trainer, TheNormalizersLossIsReportedSeparately) {
  Bench plain, with({.z_loss = 1e-2}), cut({.micro_batch_tokens = 16, .z_loss = 1e-2});
  const StepResult without = plain.trainer.step(kRows, 1e-3), found = with.trainer.step(kRows, 1e-3),
                   pieces = cut.trainer.step(kRows, 1e-3);
  EXPECT_NEAR(found.loss, without.loss, 1e-6 * without.loss);
  EXPECT_EQ(without.z_loss, 0);
  EXPECT_GT(found.z_loss, 1e-2 * 4);  // of uniform logits it is z · log(48)²
  EXPECT_NEAR(pieces.z_loss, found.z_loss, 1e-6 * found.z_loss);
  EXPECT_NE(with.gradients(), plain.gradients());
}

TEST(Trainer, TellsTheLossOfEachSource) {
  std::vector<PackedRow> rows{test_row(1, {9, 5}), test_row(2, {4, 12, 6})};
  rows[0].sources = {0, 2};
  rows[1].sources = {2, 0, 2};
  for (const int64_t tokens : {0, 1}) {
    Bench bench({.micro_batch_tokens = tokens, .num_sources = 3});
    const EvalResult judged = bench.trainer.evaluate(rows);
    const StepResult step = bench.trainer.step(rows, 1e-3);
    for (const std::vector<SourceLoss>& sources : {judged.sources, step.sources}) {
      ASSERT_EQ(sources.size(), 3u);
      EXPECT_EQ(sources[1].target_tokens, 0);
      EXPECT_EQ(sources[1].mean(), 0);
      EXPECT_EQ(sources[0].target_tokens + sources[2].target_tokens, step.target_tokens);
      const double all = (sources[0].sum + sources[2].sum) / static_cast<double>(step.target_tokens);
      EXPECT_NEAR(all, step.loss, 1e-6 * step.loss);
    }
    // The documents of the first source alone.
    const std::vector<PackedRow> alone{test_row(1, {9})};
    const EvalResult nine = Bench().trainer.evaluate(alone);
    std::vector<PackedRow> split = rows;
    split[0].sources = {1, 2};
    const EvalResult apart = Bench().trainer.evaluate(split);
    EXPECT_NEAR(apart.sources[1].mean(), nine.loss, 1e-5 * nine.loss);
  }
  EXPECT_TRUE(Bench().trainer.step(rows, 1e-3).sources.empty());
}

TEST(Trainer, CheckpointingChangesNoBits) {
  // With and without norms of the heads, by latents; norms behind modules; parts of heads; experts.
  for (const char* type : {"qwen3", "llama", "deepseek_v3", "gemma3_text", "olmo2", "glm4", "qwen3_moe"})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const ops::OpsConfig& ops : {ops::all_eager(), ops::OpsConfig()}) {
        const TinyModel tiny{.type = type, .dtype = dtype, .ops = ops};
        Bench kept({}, tiny), selective({.checkpointing = Checkpointing::kSelective}, tiny),
            full({.checkpointing = Checkpointing::kFull}, tiny);
        for (int i = 0; i < 3; ++i) {
          const StepResult expected = kept.trainer.step(kRows, 1e-2);
          for (Bench* other : {&selective, &full}) {
            const StepResult found = other->trainer.step(kRows, 1e-2);
            EXPECT_EQ(found.loss, expected.loss);
            EXPECT_EQ(found.grad_norm, expected.grad_norm);
            EXPECT_EQ(other->gradients(), kept.gradients());
          }
        }
        EXPECT_EQ(selective.weights(), kept.weights());
        EXPECT_EQ(full.weights(), kept.weights());
      }
}

TEST(Trainer, CheckpointingKeepsLess) {
  const std::vector<PackedRow> rows{test_row(1, {60}), test_row(2, {60}), test_row(3, {60})};
  const auto peak = [&](Checkpointing checkpointing) {
    Bench setup({.checkpointing = checkpointing}, {.dtype = DType::kBF16, .ops = {}});
    pool().reset_peak();
    const auto index = static_cast<size_t>(MemoryTag::kActivations);
    const int64_t before = pool().usage()[index].live;
    setup.trainer.step(rows, 1e-3);
    return pool().usage()[index].peak - before;
  };
  const int64_t none = peak(Checkpointing::kNone), selective = peak(Checkpointing::kSelective);
  EXPECT_LT(static_cast<double>(selective), 0.75 * static_cast<double>(none));
  EXPECT_LT(peak(Checkpointing::kFull), none);
}

TEST(Trainer, TheStepsLossIsTheMeanOverTargets) {
  Bench setup;
  const EvalResult before = setup.trainer.evaluate(kRows);
  const StepResult step = setup.trainer.step(kRows, 0);
  EXPECT_EQ(before.target_tokens, step.target_tokens);
  EXPECT_NEAR(before.loss, step.loss, 1e-6 * step.loss);
  // Of one row, in double, from the model's own logits.
  Tape tape(false);
  const PackedRow& row = kRows[2];
  const auto input = layers::make_input(row.ids, std::vector<int32_t>{20});
  const Tensor logits = setup.model->decoder.logits(tape, setup.model->decoder.forward(tape, input)).value;
  double sum = 0;
  for (int64_t i = 0; i < 20; ++i) {
    if (row.targets[static_cast<size_t>(i)] == data::kIgnore) continue;
    const auto values = logits.narrow(0, i, 1).contiguous().values<float>();
    double total = 0;
    for (const float value : values) total += std::exp(double{value});
    sum += std::log(total) - double{values[static_cast<size_t>(row.targets[static_cast<size_t>(i)])]};
  }
  EXPECT_NEAR(setup.trainer.evaluate({row}).loss, sum / static_cast<double>(row.num_targets()), 1e-5);
}

TEST(Trainer, LearnsOneBatchByHeart) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Bench setup({}, {.dtype = dtype, .deviation = 0.05});
    const double first = setup.trainer.step(kRows, 1e-2).loss;
    double last = first;
    for (int i = 0; i < 60; ++i) last = setup.trainer.step(kRows, 1e-2).loss;
    EXPECT_LT(last, first / 4) << to_string(dtype);
  }
}

// Everything in bfloat16: small updates survive by their rounding, which repeats for any number of threads.
TEST(Trainer, LearnsWithNarrowStateOnTheCpu) {
  for (const bool master : {false, true}) {
    const layers::StateFormat narrow{master, DType::kBF16, DType::kBF16};
    const TinyModel tiny{.dtype = DType::kBF16, .ops = {}, .deviation = 0.05, .format = narrow};
    const auto run = [&](int threads, int64_t micro_batch_tokens) {
      const op_testing::Threads limit(threads);
      Bench setup({.micro_batch_tokens = micro_batch_tokens}, tiny, {.format = narrow, .seed = 5});
      std::vector<double> losses;
      for (int i = 0; i < 60; ++i) losses.push_back(setup.trainer.step(kRows, 1e-2).loss);
      return std::pair{losses, setup.weights()};
    };
    for (const int64_t micro_batch_tokens : {0, 16}) {
      SCOPED_TRACE(fmt::format("master {}, micro-batches of {}", master, micro_batch_tokens));
      const auto first = run(2, micro_batch_tokens);
      EXPECT_LT(first.first.back(), first.first.front() / 4);
      EXPECT_EQ(run(2, micro_batch_tokens), first);
      EXPECT_EQ(run(1, micro_batch_tokens), first);
    }
  }
}

// Once steps have taken their memory they take no more: no page comes from the system.
TEST(Trainer, SettledStepsTakeNoMemory) {
  const auto pages = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
  };
  Bench setup;
  for (int step = 0; step < 5; ++step) setup.trainer.step(kRows, 1e-3);
  pool().reset_peak();
  const int64_t held = pool().peak_held();
  const int64_t before = pages();
  for (int step = 0; step < 20; ++step) setup.trainer.step(kRows, 1e-3);
  EXPECT_EQ(pool().peak_held(), held);
  if (kSanitizerTakesMemory) GTEST_SKIP() << "pages are not counted: a sanitizer keeps freed memory";
  EXPECT_LT(pages() - before, 20);  // not one a step: threads' stacks may grow
}

TEST(Trainer, ClippingLimitsTheNorm) {
  // After one step without momentum's history AdamW moves by lr whatever the scale, so two steps are
  // compared.
  Bench free({.max_grad_norm = 0}), loose({.max_grad_norm = 1e9}), tight({.max_grad_norm = 1e-3});
  for (int i = 0; i < 2; ++i)
    for (Bench* setup : {&free, &loose, &tight}) setup->trainer.step({kRows[static_cast<size_t>(i)]}, 1e-2);
  EXPECT_EQ(free.weights(), loose.weights());
  EXPECT_NE(free.weights(), tight.weights());
}

TEST(Trainer, DivergenceAndEmptyStepsLeaveTheModelAsItWas) {
  Bench setup;
  const std::vector<float> before = setup.weights();
  PackedRow silent = kRows[0];
  std::fill(silent.targets.begin(), silent.targets.end(), data::kIgnore);
  EXPECT_THROW(setup.trainer.step({silent}, 1e-3), Error);
  EXPECT_EQ(setup.weights(), before);
  Tensor value = setup.model->decoder.parameters().at("norm.weight").value;
  const float kept = value.data<float>()[0];
  value.data<float>()[0] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(setup.trainer.step(kRows, 1e-3), Error);
  value.data<float>()[0] = kept;
  EXPECT_EQ(setup.weights(), before);
}

TEST(Flops, CountProductsAndCausalHalves) {
  layers::DecoderConfig config = tiny_model()->decoder.config();
  // Per token: q|k|v 32·64, output 32·32, three MLP matrices 32·48; twice; and the head 32·48.
  const double products = 2.0 * (2 * (32 * 64 + 32 * 32 + 3 * 32 * 48) + 32 * 48);
  // Two layers, scores and their sum with values: 2·2 operations for each of 10·11/2 pairs and 32 channels.
  const std::vector<int32_t> ten{10}, split{4, 6};
  EXPECT_DOUBLE_EQ(forward_flops(config, ten), 10 * products + 2 * 4 * 32 * 55.0);
  EXPECT_DOUBLE_EQ(forward_flops(config, split), 10 * products + 2 * 4 * 32 * (10.0 + 21));
  // The first layer attends to at most 3: 1 + 2 + 8·3 pairs.
  Json windows = tiny_model()->config;
  windows.set("use_sliding_window", true);
  windows.set("sliding_window", 3);
  windows.set("layer_types", Json::Array{"sliding_attention", "full_attention"});
  config = models::configure(windows, "config.json");
  EXPECT_DOUBLE_EQ(forward_flops(config, ten), 10 * products + 4 * 32 * (27.0 + 55));
  EXPECT_DOUBLE_EQ(training_flops(config, ten), 3 * forward_flops(config, ten));
  // Latents: q_a|kv_a 32·(12 + 10 + 4), q_b 12·40, kv_b 10·56, output 32·32; scores of 40 channels, values
  // of 32.
  config = tiny_model({.type = "deepseek_v3"})->decoder.config();
  const double latent = 2.0 * (2 * (32 * 26 + 12 * 40 + 10 * 56 + 32 * 32 + 3 * 32 * 48) + 32 * 48);
  EXPECT_DOUBLE_EQ(forward_flops(config, split), 10 * latent + 2 * 2 * (40 + 32) * (10.0 + 21));
}

// On every machine: two runs are the same bits, and the losses those of the CPU up to rounding.
TEST(Trainer, RepeatsItselfEverywhere) {
  const auto losses_on = [](const HardwareFacts& machine, const TinyModel& tiny) {
    TinyModel there = tiny;
    there.facts = machine;
    there.ops = {};
    Bench setup({}, there);
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) losses.push_back(setup.trainer.step(kRows, 1e-3).loss);
    return losses;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<double> expected = losses_on(detect_cpu(), {.dtype = dtype});
    for (const HardwareFacts& machine : op_testing::machines()) {
      SCOPED_TRACE(fmt::format("{}, {}", to_string(machine.device), to_string(dtype)));
      const std::vector<double> found = losses_on(machine, {.dtype = dtype});
      EXPECT_EQ(losses_on(machine, {.dtype = dtype}), found);
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], expected[i] * (dtype == DType::kF32 ? 1e-4 : 0.02))
            << "step " << i;
    }
  }
}

}  // namespace
}  // namespace temper::training
