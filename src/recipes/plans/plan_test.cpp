#include "recipes/plans/plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "config/load.h"
#include "optimizers/adamw.h"
#include "recipes/plans/plan_test_support.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

int64_t live() {
  int64_t sum = 0;
  for (const RegionUsage& region : pool().usage()) sum += region.live;
  return sum;
}

// The promise: within 5 %.
void expect_close(int64_t planned, int64_t used, const std::string& table) {
  EXPECT_GE(static_cast<double>(planned), 0.95 * static_cast<double>(used)) << table;
  EXPECT_LE(static_cast<double>(planned), 1.05 * static_cast<double>(used)) << table;
}

struct Variant {
  DType dtype;
  Checkpointing checkpointing;
  const char* type = "qwen3";
};

class PlanTest : public testing::TestWithParam<Variant> {
 protected:
  RunConfig config_of(int rows, int64_t micro_batch_tokens) const {
    RunConfig config;
    config.model.dtype = GetParam().dtype;
    config.data.max_length = 256;
    config.train.rows_per_step = rows;
    config.train.compute.micro_batch_tokens = micro_batch_tokens;
    config.train.compute.activation_checkpointing = GetParam().checkpointing;
    return config;
  }
};

// The plan is a promise: a run that it admits must not run out of memory later, and one that fits must not be
// turned away.
TEST_P(PlanTest, IsCloseToWhatAStepTakes) {
  const RunConfig config = config_of(8, 1024);
  const Json json = medium_config(GetParam().type);
  const MemoryPlan plan = rehearse(config, {json, detect_cpu()});

  const int64_t before = live();
  pool().reset_peak();
  models::BuildOptions build;
  build.dtype = config.model.dtype;
  const auto model = models::build_model(json, "medium", build);
  auto& parameters = model->decoder.parameters();
  parameters.initialize(1, 0.02);
  optimizers::AdamW optimizer(parameters, model->decoder.ops(), {});
  training::Trainer trainer(model->decoder, optimizer,
                            {.micro_batch_tokens = config.train.compute.micro_batch_tokens,
                             .checkpointing = GetParam().checkpointing});
  const std::vector<data::PackedRow> rows(8, row_of(256));
  for (int i = 0; i < 2; ++i) trainer.step(rows, 1e-4);
  expect_close(plan.total, pool().peak_live() - before,
               memory_table(pool().usage(), pool().peak_live(), &plan));
}

// In a step of one micro-batch gradients take the memory that activations leave: the limit is on all
// together.
TEST_P(PlanTest, CountsGradientsWhereActivationsWere) {
  const op_testing::Threads one(
      1);  // of several, not each need take part in products that have memory of their own
  const RunConfig config = config_of(4, 0);
  const Json json = medium_config(GetParam().type);
  models::BuildOptions build;
  build.dtype = config.model.dtype;
  const auto model = models::build_model(json, "medium", build);
  model->decoder.parameters().initialize(1, 0.02);
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
  training::Trainer trainer(model->decoder, optimizer, {.checkpointing = GetParam().checkpointing});
  const std::vector<data::PackedRow> rows(4, row_of(256));
  trainer.step(rows, 1e-4);  // rotary tables
  model->decoder.parameters().release_gradients();

  const MemoryPlan plan = rehearse(config, {json, detect_cpu()});
  const int64_t fixed = plan.of(MemoryTag::kWeights) + plan.of(MemoryTag::kOptimizer),
                step = plan.total - fixed;
  EXPECT_LT(plan.total, std::accumulate(plan.peaks.begin(), plan.peaks.end(), int64_t{0}));
  const int64_t limit = pool().limit(), now = live();
  pool().set_limit(now + step * 21 / 20);
  EXPECT_NO_THROW(trainer.step(rows, 1e-4));
  model->decoder.parameters().release_gradients();
  pool().set_limit(now + step * 19 / 20);
  EXPECT_THROW(trainer.step(rows, 1e-4), Error);
  pool().set_limit(limit);
}

std::string name_of(const testing::TestParamInfo<Variant>& info) {
  constexpr const char* kNames[] = {"none", "selective", "full"};
  return fmt::format("{}_{}_{}", info.param.type, to_string(info.param.dtype),
                     kNames[static_cast<size_t>(info.param.checkpointing)]);
}

INSTANTIATE_TEST_SUITE_P(Variants, PlanTest,
                         testing::Values(Variant{DType::kF32, Checkpointing::kNone},
                                         Variant{DType::kF32, Checkpointing::kSelective},
                                         Variant{DType::kF32, Checkpointing::kFull},
                                         Variant{DType::kBF16, Checkpointing::kNone},
                                         Variant{DType::kBF16, Checkpointing::kSelective},
                                         Variant{DType::kBF16, Checkpointing::kFull},
                                         Variant{DType::kF32, Checkpointing::kSelective, "deepseek_v3"},
                                         Variant{DType::kBF16, Checkpointing::kNone, "deepseek_v3"},
                                         Variant{DType::kF32, Checkpointing::kNone, "qwen3_moe"},
                                         Variant{DType::kBF16, Checkpointing::kFull, "qwen3_moe"},
                                         // Norms behind modules, norms of all heads, multipliers.
                                         Variant{DType::kBF16, Checkpointing::kSelective, "gemma3_text"},
                                         Variant{DType::kBF16, Checkpointing::kSelective, "olmo2"},
                                         Variant{DType::kF32, Checkpointing::kNone, "olmo2"},
                                         Variant{DType::kBF16, Checkpointing::kSelective, "granite"},
                                         Variant{DType::kF32, Checkpointing::kNone, "granite"}),
                         name_of);

class CheckMemory : public testing::Test {
 protected:
  CheckMemory() {
    config_.data.max_length = 256;
    config_.train.rows_per_step = 8;
    config_.train.compute.micro_batch_tokens = 0;
  }
  int64_t needed(const RunConfig& config) const { return rehearse(config, setting_).total; }
  std::string refusal(int64_t limit) const {
    try {
      check_memory(config_, setting_, rehearse(config_, setting_), limit);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kResources);
      return error.what();
    }
    return {};
  }

  RunConfig config_;
  Setting setting_{medium_config(), detect_cpu()};
};

TEST_F(CheckMemory, RefusesWhatCannotFit) {
  EXPECT_EQ(refusal(needed(config_)), "");
  EXPECT_EQ(refusal(needed(config_) - 1), "");  // a warning: activations are an estimate
  EXPECT_NE(refusal(50 << 10).find("train a smaller model"), std::string::npos) << refusal(50 << 10);
}

TEST_F(CheckMemory, SaysWhatWouldFit) {
  RunConfig smaller = config_;
  smaller.train.compute.micro_batch_tokens = 4 * 256;
  EXPECT_EQ(what_would_fit(config_, setting_, needed(smaller)).rfind("train.micro_batch_tokens: 1024 (", 0),
            0u);
  smaller.train.compute.micro_batch_tokens = 256;
  smaller.train.compute.activation_checkpointing = Checkpointing::kSelective;
  EXPECT_EQ(what_would_fit(config_, setting_, needed(smaller))
                .rfind("train.micro_batch_tokens: 256, train.activation_checkpointing: selective (", 0),
            0u);
  smaller.train.compute.activation_checkpointing = Checkpointing::kFull;
  smaller.model.dtype = smaller.train.gradients = smaller.train.optimizer.moments = DType::kBF16;
  smaller.train.master_weights = false;
  EXPECT_NE(what_would_fit(config_, setting_, needed(smaller)).find("train.master_weights: false"),
            std::string::npos);
  EXPECT_EQ(what_would_fit(config_, setting_, needed(smaller) - 1), "");
}

// Hardware that is not here has a plan, too, by the kernels' own figures.
TEST_F(CheckMemory, CountsWhatKernelsTakeOnAGpu) {
  config_.model.dtype = DType::kBF16;
  config_.train.compute.micro_batch_tokens = 1024;
  config_.train.compute.cuda_graph = training::CudaGraph::kOff;
  setting_.facts = known_hardware("cuda-sm90");
  const ops::BoundOps kernels =
      models::bind_kernels(setting_.model, "medium", {.ops = ops::OpsConfig{}, .facts = setting_.facts});
  for (const ops::Choice& choice : kernels.choices())
    if (choice.op == "cross_entropy" && choice.provider != "cublaslt")
      GTEST_SKIP() << "this build has no kernels for NVIDIA GPUs";
  const auto workspace = [&] { return rehearse(config_, setting_).of(MemoryTag::kWorkspace); };
  constexpr int64_t kProduct = 64 << 20;
  EXPECT_NEAR(static_cast<double>(workspace()), 1024 * 2048 * 2 + kProduct,
              1 << 16);  // all logits, and a product
  for (auto& [key, value] : setting_.model.as_object())
    if (key == "vocab_size") value = 150000;
  config_.train.compute.micro_batch_tokens = 0;
  config_.train.rows_per_step = 64;
  EXPECT_NEAR(static_cast<double>(workspace()), 4096.0 * 150000 * 2 + kProduct,
              1 << 16);  // a quarter of them
}

// What weights go through to another process is the device's between updates, or the CPU's.
TEST_F(CheckMemory, CountsWhatWeightsTravelThrough) {
  setting_.facts = known_hardware("cuda-sm90");
  config_.device = "cuda";
  const auto workspace = [&] { return rehearse(config_, setting_).of(MemoryTag::kWorkspace); };
  const int64_t without = workspace();
  config_.exchange.to = "/tmp/weights.sock";
  config_.exchange.chunk_mib = 4096;
  constexpr int64_t kChunk = int64_t{4096} << 20;
  // In addition there is memory that kernels keep between updates.
  EXPECT_GE(workspace(), kChunk);
  EXPECT_LE(workspace(), kChunk + without);
  EXPECT_LT(without, kChunk / 4);
  config_.exchange.memory = ChunkMemory::kHost;
  EXPECT_EQ(workspace(), without);
}

// Of groups of GPUs that sum bfloat16 each has a place for what other ranks send; float32 is summed without.
TEST_F(CheckMemory, CountsWhatGpusReceiveForSums) {
  config_.model.dtype = DType::kBF16;
  setting_.facts = known_hardware("cuda-sm90");
  const auto expect_places = [&](const Mesh& mesh, int expected) {
    constexpr double kReceived = 64 << 20,
                     kRows = 1 << 20;  // the rows of a step, of which each rank has fewer
    setting_.mesh = {};
    const int64_t one = rehearse(config_, setting_).of(MemoryTag::kData);
    setting_.mesh = mesh;
    EXPECT_NEAR(static_cast<double>(rehearse(config_, setting_).of(MemoryTag::kData) - one),
                expected * kReceived, kRows);
  };
  expect_places({.tensor = 2}, 1);
  expect_places({.replicate = 2, .tensor = 2}, 1);  // gradients are float32
  config_.train.gradients = DType::kBF16;
  expect_places({.replicate = 2, .tensor = 2}, 2);
  config_.model.dtype = DType::kF32;
  config_.train.gradients = DType::kF32;
  expect_places({.replicate = 2, .tensor = 2}, 0);
  config_.model.dtype = DType::kBF16;
  setting_.facts = detect_cpu();  // ranks of hosts have no such place
  expect_places({.tensor = 2}, 0);
}

// The network that sums gradients is down while answers are sampled; that of tensor ranks is not.
TEST_F(CheckMemory, NetworksThatSleepGiveTheirPlacesBack) {
  setting_.facts = known_hardware("cuda-sm90");
  setting_.mesh = {.replicate = 2, .tensor = 2};
  const auto data_of_rollouts = [&](const char* sleep) {
    RunConfig config;
    config::Schema schema = config::schema_of(config);
    config::load(schema, "",
                 {"--recipe=grpo", "--device=cuda", "--output=x", "--model.path=x", "--model.dtype=bfloat16",
                  "--data.train=[x]", "--data.max_length=128", "--train.gradients=bfloat16",
                  "--grpo.rewards=[{type: pattern, pattern: x}]", "--grpo.sampling.max_new_tokens=8",
                  fmt::format("--grpo.engine.sleep={}", sleep)});
    return static_cast<double>(rehearse(config, setting_).rollouts.value().plan.of(MemoryTag::kData));
  };
  EXPECT_NEAR(data_of_rollouts("[]") - data_of_rollouts("[communication]"), 64 << 20, 1 << 16);
}

// Stages keep a copy of the weights that answers, which is a half of the model on each of two ranks. What is
// left for the cache is that of the stage that leaves least, whichever needs most in updates.
TEST_F(CheckMemory, StagesHaveACopyOfTheWeightsForRollouts) {
  RunConfig config;
  config::Schema schema = config::schema_of(config);
  config::load(schema, "",
               {"--recipe=grpo", "--output=x", "--model.path=x", "--data.train=[x]", "--data.max_length=128",
                "--grpo.rewards=[{type: pattern, pattern: x}]", "--grpo.sampling.max_new_tokens=8",
                "--grpo.kl.beta=0"});
  const auto weights_of = [](const MemoryPlan& plan) {
    return static_cast<double>(plan.of(MemoryTag::kWeights));
  };
  setting_.model.set("tie_word_embeddings", false);
  setting_.model.set("vocab_size", 16384);
  config.adapters = {{.rank = 8}};
  config.train.compute.micro_batch_tokens = 256;
  config.train.compute.activation_checkpointing = Checkpointing::kFull;
  const double whole = weights_of(rehearse(config, setting_));
  config.parallel.pipeline = 2;
  RunMemory plan = rehearse(config, setting_);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_NEAR(weights_of(plan.stages[0]) + weights_of(plan.stages[1]), 2 * whole, 0.02 * whole);
  std::vector<RunMemory> own;
  for (int stage = 0; stage < 2; ++stage) {
    setting_.stage = stage;
    own.push_back(rehearse(config, setting_));
  }
  ASSERT_GT(own[1].total, own[0].total);
  ASSERT_GT(own[0].rollouts->plan.total, own[1].rollouts->plan.total);
  EXPECT_EQ(plan.rollouts->plan.total, own[0].rollouts->plan.total);
  EXPECT_EQ(plan.updates.total, own[1].updates.total);
  plan.set_cache(plan.rollouts->wish.engine.cache_tokens);
  for (size_t stage = 0; stage < 2; ++stage)
    EXPECT_EQ(plan.stages[stage].of(MemoryTag::kKvCache), own[stage].rollouts->plan.of(MemoryTag::kKvCache));
}

// Frozen weights have no gradients, moments, masters or place in checkpoints.
TEST(Plan, AdaptersTakeTheirOwnStateOnly) {
  RunConfig config;
  config.data.max_length = 256;
  config.model.dtype = DType::kBF16;
  const Setting setting{medium_config(), detect_cpu()};
  const MemoryPlan all = rehearse(config, setting);
  config.adapters = {{.rank = 8}};
  const MemoryPlan one = rehearse(config, setting);
  config.adapters.push_back({.name = "b", .rank = 8});
  const MemoryPlan two = rehearse(config, setting);
  const auto of = [](const MemoryPlan& plan, MemoryTag tag) { return plan.of(tag); };
  const int64_t adapter = of(one, MemoryTag::kWeights) - of(all, MemoryTag::kWeights);
  EXPECT_GT(adapter, 0);
  EXPECT_EQ(of(one, MemoryTag::kGradients), 2 * adapter);  // float32 compared with bfloat16
  EXPECT_EQ(of(one, MemoryTag::kOptimizer), 6 * adapter);
  EXPECT_EQ(of(two, MemoryTag::kGradients), 4 * adapter);
  EXPECT_LT(of(one, MemoryTag::kOptimizer), of(all, MemoryTag::kOptimizer) / 4);
}

// During updates there is a copy of a checkpoint's tensors, masters and moments, in the CPU's memory.
TEST(Plan, CheckpointsBesideUpdatesTakeACopyOfTheState) {
  RunConfig config;
  config.data.max_length = 256;
  config.model.dtype = DType::kBF16;
  Setting setting{medium_config(), detect_cpu()};
  const RunMemory waits = rehearse(config, setting);
  config.checkpoint.async = true;
  const RunMemory background = rehearse(config, setting);
  const int64_t state = waits.of(MemoryTag::kOptimizer);
  EXPECT_NEAR(static_cast<double>(background.of(MemoryTag::kData) - waits.of(MemoryTag::kData)),
              static_cast<double>(state), 0.01 * static_cast<double>(state));
  EXPECT_NEAR(static_cast<double>(background.total - waits.total), static_cast<double>(state),
              0.01 * static_cast<double>(state));
  EXPECT_EQ(background.host_copies, 0);
  setting.mesh = {.shard = 4};
  EXPECT_LT(rehearse(config, setting).of(MemoryTag::kData), state / 3) << "each rank copies its part";

  RunMemory apart = waits;
  apart.host_copies = int64_t{1} << 50;
  expect_has(error_of([&] { check_memory(config, setting, apart, apart.total); }, ErrorKind::kResources),
             "[checkpoint.async] copies states to the CPU's memory, where they take 1.00 PiB, but only ");
}

// Linears of a frozen model in 8 bits take half, and a place to widen the largest of them in.
TEST(Plan, ABaseIn8BitsIsSmaller) {
  RunConfig config;
  config.data.max_length = 256;
  config.model.dtype = DType::kBF16;
  config.adapters = {{.rank = 8}};
  const Setting setting{medium_config(), detect_cpu()};
  const MemoryPlan wide = rehearse(config, setting);
  config.model.base_dtype = primitives::FrozenFormat::kFloat8;
  const MemoryPlan narrow = rehearse(config, setting);
  int64_t codes = 0, scales = 0;
  const WeightTable table = layers::decoder_weight_table(models::configure(setting.model, "medium"));
  for (const WeightSpec& spec : table.specs())
    if (spec.quantize) codes += spec.shape.numel(), scales += spec.shape[0];
  const auto of = [](const MemoryPlan& plan, MemoryTag tag) { return plan.of(tag); };
  EXPECT_EQ(of(wide, MemoryTag::kWeights) - of(narrow, MemoryTag::kWeights), codes - 4 * scales);
  for (const MemoryTag tag : {MemoryTag::kGradients, MemoryTag::kOptimizer})
    EXPECT_EQ(of(narrow, tag), of(wide, tag));

  config.model.base_dtype.reset();
  config.train.compute.activation_checkpointing = Checkpointing::kFull;
  config.train.rows_per_step = 1;
  config.data.max_length = 16;
  const MemoryPlan least = rehearse(config, setting);
  const std::string fits = what_would_fit(config, setting, least.total - codes / 2);
  EXPECT_EQ(fits.rfind("model.base_dtype: float8_e4m3fn (", 0), 0u) << fits;
  RunConfig narrowest = config;
  narrowest.model.base_dtype = primitives::FrozenFormat::kFloat8;
  narrowest.train.gradients = narrowest.train.optimizer.moments = DType::kBF16;
  narrowest.train.master_weights = false;
  const std::string least_of_all = what_would_fit(config, setting, rehearse(narrowest, setting).total - 1);
  EXPECT_NE(least_of_all.find(", model.base_dtype: nf4_double ("), std::string::npos) << least_of_all;
  EXPECT_EQ(least_of_all.find("float8_e4m3fn"), std::string::npos) << least_of_all;
}

// Plans count what a model in nf4 takes to the byte.
TEST(Plan, ABaseInNf4TakesWhatItTakes) {
  RunConfig config;
  config.data.max_length = 256;
  config.model.dtype = DType::kBF16;
  config.adapters = {{.rank = 8}};
  const Setting setting{medium_config(), detect_cpu()};
  const auto planned = [&] { return rehearse(config, setting).of(MemoryTag::kWeights); };
  const auto taken = [&] {
    const auto live = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kWeights)].live; };
    const int64_t before = live();
    const layers::ParameterStore store(
        layers::decoder_weight_table(models::configure(setting.model, "medium")), DType::kBF16, {},
        config.model.base_dtype);
    return live() - before;
  };
  const int64_t wide_planned = planned(), wide = taken();
  for (const auto format : {primitives::FrozenFormat::kNf4, primitives::FrozenFormat::kNf4Double}) {
    config.model.base_dtype = format;
    EXPECT_EQ(wide_planned - planned(), wide - taken());
    EXPECT_LT(taken(), wide / 2);
  }
}

}  // namespace
}  // namespace temper::recipes
