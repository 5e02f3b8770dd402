#include "training/adapter_trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "models/adapter.h"
#include "tests/support/gpu.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"

namespace temper::training {
namespace {

using data::PackedRow;

std::vector<float> values_of(const layers::ParameterStore& parameters) {
  std::vector<float> all;
  for (const WeightSpec& spec : parameters.table().specs()) {
    const Tensor value = parameters.value(spec.name).on({}).to(DType::kF32);
    all.insert(all.end(), value.values<float>().begin(), value.values<float>().end());
  }
  return all;
}

// An adapter with its optimizer, data and learning rate.
struct Learner {
  Learner(const models::Model& model, const LoraConfig& config, uint64_t number, double rate = 1e-2)
      : adapter(models::new_adapter(model, config, number, "")),
        optimizer(adapter->parameters(), model.decoder.ops(), {}),
        seed(number),
        lr(rate) {}
  // Other rows in each step.
  const std::vector<PackedRow>& rows_of_step() {
    const auto n = static_cast<uint32_t>(1000 * seed + static_cast<uint64_t>(optimizer.steps()));
    rows = {test_row(n, {9}), test_row(n + 1, {4, 12}), test_row(n + 2, {5})};
    return rows;
  }
  AdapterShare share() { return {adapter.get(), &optimizer, &rows_of_step(), lr, seed}; }

  std::unique_ptr<layers::Adapter> adapter;
  optimizers::AdamW optimizer;
  uint64_t seed;
  double lr;
  std::vector<PackedRow> rows;
};

LoraConfig everything() {
  LoraConfig config{.rank = 3, .alpha = 6, .dropout = 0.2};
  config.targets = {.regex = ".*_proj|.*embed_tokens"};
  config.modules_to_save = {"post_attention_layernorm", "q_norm", "down_proj"};
  return config;
}

LoraConfig some() {
  LoraConfig config{.rank = 5, .alpha = 5, .stabilized = true};
  config.targets = {.names = {"q_proj", "v_proj", "gate_proj"}};
  return config;
}

TinyModel fast() {
  TinyModel options;
  options.ops = {};
  return options;
}

struct Trained {
  std::vector<float> values;
  std::vector<double> losses, norms;
};

// Adapters of these configurations, `steps` updates each, all of them together in each step.
std::vector<Trained> train(const models::Model& model, const std::vector<LoraConfig>& configs, int steps,
                           const TrainerOptions& options, uint64_t first_seed = 1) {
  std::vector<std::unique_ptr<Learner>> learners;
  for (size_t i = 0; i < configs.size(); ++i)
    learners.push_back(std::make_unique<Learner>(model, configs[i], first_seed + i));
  AdapterTrainer trainer(model.decoder, options);
  std::vector<Trained> trained(configs.size());
  const std::vector<float> before = values_of(model.decoder.parameters());
  for (int step = 0; step < steps; ++step) {
    std::vector<AdapterShare> shares;
    for (const auto& learner : learners) shares.push_back(learner->share());
    std::vector<PendingStep> pending = trainer.begin(shares);
    for (size_t i = 0; i < configs.size(); ++i) {
      const StepResult result = pending[i].wait();
      trained[i].losses.push_back(result.loss);
      trained[i].norms.push_back(result.grad_norm);
    }
  }
  EXPECT_EQ(values_of(model.decoder.parameters()), before) << "the model is frozen";
  for (size_t i = 0; i < configs.size(); ++i)
    trained[i].values = values_of(learners[i]->adapter->parameters());
  return trained;
}

std::vector<Trained> train(const TinyModel& tiny, const std::vector<LoraConfig>& configs, int steps,
                           const TrainerOptions& options, uint64_t first_seed = 1) {
  return train(*tiny_model(tiny), configs, steps, options, first_seed);
}

// Plain loops compute a row without regard to the others: the bits are those of the adapter alone.
TEST(AdapterTrainer, EachAdapterLearnsAsIfAlone) {
  const std::vector<LoraConfig> configs{everything(), some(), everything()};
  for (const int64_t tokens : {0, 25}) {
    const auto together = train({}, configs, 3, {.micro_batch_tokens = tokens});
    for (size_t i = 0; i < configs.size(); ++i) {
      const auto alone = train({}, {configs[i]}, 3, {.micro_batch_tokens = 0}, 1 + i)[0];
      if (tokens == 0) {
        EXPECT_EQ(together[i].losses, alone.losses) << i;
        EXPECT_EQ(together[i].values, alone.values) << i;
      }
      for (size_t step = 0; step < 3; ++step) {
        EXPECT_NEAR(together[i].losses[step], alone.losses[step], 1e-5 * alone.losses[step]);
        EXPECT_NEAR(together[i].norms[step], alone.norms[step], 1e-4 * alone.norms[step]);
      }
      EXPECT_GT(std::abs(alone.losses[0] - alone.losses[2]), 1e-3);
    }
  }
}

TEST(AdapterTrainer, FastKernelsAgreeToRounding) {
  const std::vector<LoraConfig> configs{some(), everything()};
  const auto together = train(fast(), configs, 2, {});
  for (size_t i = 0; i < configs.size(); ++i) {
    const auto alone = train(fast(), {configs[i]}, 2, {}, 1 + i)[0],
               eager = train({}, {configs[i]}, 2, {}, 1 + i)[0];
    for (size_t step = 0; step < 2; ++step) {
      EXPECT_NEAR(together[i].losses[step], alone.losses[step], 2e-6 * alone.losses[step]);
      EXPECT_NEAR(together[i].norms[step], alone.norms[step], 2e-5 * alone.norms[step]);
      EXPECT_NEAR(eager.losses[step], alone.losses[step], 1e-5 * alone.losses[step]);
    }
  }
}

// There rows are padded, those of each adapter separately.
TEST(AdapterTrainer, AGpuLearnsWhatTheCpuLearns) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::vector<LoraConfig> configs{everything(), some(), everything()};
  const auto cpu = tiny_model(), gpu = tiny_model({.ops = {}, .facts = detect_hardware("cuda")});
  for (size_t i = 0; i < cpu->decoder.parameters().size(); ++i)
    gpu->decoder.parameters()[i].value.copy_from(
        cpu->decoder.parameters()[i].value.on(gpu->decoder.device()));
  for (const int64_t tokens : {0, 25}) {
    const auto here = train(*cpu, configs, 3, {.micro_batch_tokens = tokens}),
               there = train(*gpu, configs, 3, {.micro_batch_tokens = tokens});
    for (size_t i = 0; i < configs.size(); ++i)
      for (size_t step = 0; step < 3; ++step) {
        EXPECT_NEAR(there[i].losses[step], here[i].losses[step], 1e-4 * here[i].losses[step]) << i << step;
        EXPECT_NEAR(there[i].norms[step], here[i].norms[step], 1e-3 * here[i].norms[step]) << i << step;
      }
  }
}

// A micro-batch of one adapter's rows is computed as it would be alone, by any kernel.
TEST(AdapterTrainer, MicroBatchesOfOneAdapterGiveTheSameBits) {
  const std::vector<LoraConfig> configs{some(), everything()};
  const auto together = train(fast(), configs, 2, {.micro_batch_tokens = 1});
  for (size_t i = 0; i < configs.size(); ++i)
    EXPECT_EQ(together[i].values, train(fast(), {configs[i]}, 2, {.micro_batch_tokens = 1}, 1 + i)[0].values);
}

TEST(AdapterTrainer, CheckpointingGivesTheSameBits) {
  for (const TinyModel& tiny : {TinyModel{}, fast()}) {
    const auto kept = train(tiny, {some(), everything()}, 2, {});
    for (const Checkpointing checkpointing : {Checkpointing::kSelective, Checkpointing::kFull}) {
      const auto again = train(tiny, {some(), everything()}, 2, {.checkpointing = checkpointing});
      EXPECT_EQ(again[0].values, kept[0].values);
      EXPECT_EQ(again[1].values, kept[1].values);
    }
  }
}

TEST(AdapterTrainer, AdaptersComeAndGoWhileOthersGoOn) {
  const auto model = tiny_model();
  AdapterTrainer trainer(model->decoder, {});
  Learner stays(*model, some(), 1), leaves(*model, everything(), 2);
  std::vector<double> losses;
  const auto step = [&](const std::vector<AdapterShare>& shares) {
    losses.push_back(trainer.begin(shares)[0].wait().loss);
  };
  step({stays.share(), leaves.share()});
  step({stays.share()});
  Learner comes(*model, everything(), 3);
  step({stays.share(), comes.share()});
  EXPECT_EQ(losses, train({}, {some()}, 3, {})[0].losses);
  EXPECT_EQ(comes.optimizer.steps(), 1);
}

TEST(AdapterTrainer, OnlyAdaptersHoldTrainingState) {
  const auto model = tiny_model();
  Learner learner(*model, some(), 1);
  AdapterTrainer(model->decoder, {}).begin({learner.share()})[0].wait();
  for (size_t i = 0; i < model->decoder.parameters().size(); ++i)
    EXPECT_EQ(model->decoder.parameters()[i].grad, nullptr);
  EXPECT_EQ(learner.optimizer.state().size(), 3 * learner.adapter->parameters().size());
}

// A frozen model in bfloat16 costs little: the adapter's master weights are float32.
TEST(AdapterTrainer, BFloat16LearnsThroughMasters) {
  for (const bool eager : {true, false}) {
    TinyModel tiny = eager ? TinyModel{} : fast();
    tiny.dtype = DType::kBF16;
    const auto model = tiny_model(tiny);
    Learner learner(*model, some(), 1, 3e-3);
    AdapterTrainer trainer(model->decoder, {});
    const auto& rows = learner.rows_of_step();
    std::vector<double> losses;
    for (int step = 0; step < 12; ++step)
      losses.push_back(
          trainer.begin({{learner.adapter.get(), &learner.optimizer, &rows, 3e-3, 1}})[0].wait().loss);
    EXPECT_LT(losses.back(), 0.9 * losses.front()) << eager;
    EXPECT_TRUE(learner.optimizer.state()[0].name.starts_with("master."));
  }
}

// A model kept in 8 or 4 bits has the same bits as a model with its dequantized weights: in losses, in
// trained weights, in copies of its weights, in evaluation.
void check_narrow_base(const TinyModel& tiny, primitives::FrozenFormat format) {
  LoraConfig whole = everything();
  whole.modules_to_save = {"q_proj", "k_proj", "v_proj", "norm"};
  whole.targets = {.names = {"gate_proj", "down_proj", "embed_tokens"}};
  TinyModel narrow = tiny;
  narrow.base_dtype = format;
  const auto kept = tiny_model(narrow);
  const TemporaryDirectory folder;
  models::save_model(*kept, folder / "meant", "");
  const auto meant = models::load_model(
      folder / "meant",
      {.dtype = tiny.dtype, .ops = tiny.ops, .purpose = models::Purpose::kTraining, .facts = tiny.facts});
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    const TrainerOptions options{.checkpointing = checkpointing};
    const auto found = train(narrow, {some(), whole}, 3, options);
    const auto expected = train(*meant, {some(), whole}, 3, options);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].losses, expected[i].losses);
      EXPECT_EQ(found[i].norms, expected[i].norms);
      EXPECT_EQ(found[i].values, expected[i].values);
    }
    EXPECT_NE(found[0].values, train(tiny, {some()}, 3, options)[0].values) << "narrow bases round";
  }
  const std::vector<PackedRow> rows{test_row(1, {9}), test_row(2, {4, 12})};
  EXPECT_EQ(evaluate(kept->decoder, nullptr, rows, 0).loss, evaluate(meant->decoder, nullptr, rows, 0).loss);
}

TEST(AdapterTrainer, ANarrowBaseIsWhatItsCodesMean) {
  for (const HardwareFacts& machine : op_testing::machines())
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (TinyModel tiny : {TinyModel{}, fast()}) {
        tiny.dtype = dtype;
        tiny.facts = machine;
        check_narrow_base(tiny, primitives::FrozenFormat::kFloat8);
        check_narrow_base(tiny, primitives::FrozenFormat::kNf4);
        check_narrow_base(tiny, primitives::FrozenFormat::kNf4Double);
      }
}

TEST(AdapterTrainer, AMixtureInNf4IsWhatItsCodesMean) {
  for (const HardwareFacts& machine : op_testing::machines())
    for (TinyModel tiny : {TinyModel{.type = "qwen3_moe"}, TinyModel{.type = "qwen3_moe", .ops = {}}}) {
      tiny.facts = machine;
      TinyModel narrow = tiny;
      narrow.base_dtype = primitives::FrozenFormat::kNf4;
      const auto kept = tiny_model(narrow);
      const TemporaryDirectory folder;
      models::save_model(*kept, folder / "meant", "");
      const auto meant = models::load_model(
          folder / "meant",
          {.dtype = tiny.dtype, .ops = tiny.ops, .purpose = models::Purpose::kTraining, .facts = tiny.facts});
      const auto found = train(narrow, {some()}, 3, {}), expected = train(*meant, {some()}, 3, {});
      EXPECT_EQ(found[0].losses, expected[0].losses);
      EXPECT_EQ(found[0].values, expected[0].values);
      EXPECT_NE(found[0].losses, train(tiny, {some()}, 3, {})[0].losses);
    }
}

// Half a byte for each weight, and for 64 of them 4 bytes, or a byte and for 256 of those 4: to the byte.
TEST(AdapterTrainer, ABaseInNf4TakesTheMemoryOf4Bits) {
  for (const auto format : {primitives::FrozenFormat::kNf4, primitives::FrozenFormat::kNf4Double}) {
    const bool is_double = format == primitives::FrozenFormat::kNf4Double;
    TinyModel tiny{.type = "qwen3", .dtype = DType::kBF16, .ops = {}};
    const auto weights = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kWeights)].live; };
    const int64_t before = weights();
    const auto wide = tiny_model(tiny);
    const int64_t between = weights();
    tiny.base_dtype = format;
    const auto kept = tiny_model(tiny);
    const auto block = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };  // that the pool gives
    int64_t expected = 0;
    for (const WeightSpec& spec : kept->decoder.parameters().table().specs()) {
      if (!spec.quantize) continue;
      const int64_t elements = spec.shape.numel(), rows = spec.shape[0], columns = spec.shape[1];
      int64_t scales = 0;
      for (const WeightSource& source : spec.sources)
        scales += is_double ? (source.rows * columns + 16383) / 16384 : (source.rows * columns + 63) / 64;
      expected += block(2 * elements) - block(elements / 2) - block(4 * scales) - block(8 * rows);
      if (is_double) expected -= block(256 * scales) + block(4 * rows);
    }
    EXPECT_EQ((between - before) - (weights() - between), expected);
    EXPECT_THROW(kept->decoder.parameters().enable_gradients(DType::kF32), Error);
  }
}

TEST(AdapterTrainer, ABaseIn8BitsTakesTheMemoryOf8Bits) {
  TinyModel narrow = fast();
  narrow.dtype = DType::kBF16;
  const auto weights = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kWeights)].live; };
  const int64_t before = weights();
  const auto wide = tiny_model(narrow);
  const int64_t between = weights();
  narrow.base_dtype = primitives::FrozenFormat::kFloat8;
  const auto kept = tiny_model(narrow);
  int64_t codes = 0, scales = 0;
  for (const WeightSpec& spec : kept->decoder.parameters().table().specs())
    if (spec.quantize) codes += spec.shape.numel(), scales += spec.shape[0];
  EXPECT_EQ((between - before) - (weights() - between), codes - 4 * scales);
  EXPECT_THROW(kept->decoder.parameters().enable_gradients(DType::kF32), Error);
}

// A fresh adapter changes nothing, and dropout is for training alone.
TEST(AdapterTrainer, EvaluationDropsNothing) {
  const auto model = tiny_model();
  const std::vector<PackedRow> rows{test_row(1, {9}), test_row(2, {4, 12})};
  Learner learner(*model, everything(), 1);
  const EvalResult alone = evaluate(model->decoder, nullptr, rows, 0);
  EXPECT_DOUBLE_EQ(evaluate(model->decoder, learner.adapter.get(), rows, 0).loss, alone.loss);
  AdapterTrainer(model->decoder, {}).begin({learner.share()})[0].wait();
  const EvalResult trained = evaluate(model->decoder, learner.adapter.get(), rows, 0);
  EXPECT_GT(std::abs(trained.loss - alone.loss), 1e-4);
  EXPECT_EQ(evaluate(model->decoder, learner.adapter.get(), rows, 0).loss, trained.loss);
}

}  // namespace
}  // namespace temper::training
