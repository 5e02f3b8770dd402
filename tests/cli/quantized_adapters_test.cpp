// Runs with quantizers that learn otherwise than a whole model from examples: adapters of a quantized base,
// preferences, and the model's own answers.
#include <cmath>

#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

class QuantizedAdapters : public GrpoCli {
 protected:
  static std::string adapters(const std::string& names) {
    std::string list;
    for (const char name : names)
      list += fmt::format("{}{{name: {}, rank: 4}}", list.empty() ? "" : ", ", name);
    return " --adapters '[" + list + "]' ";
  }
  static std::string run_of(const std::string& name, const std::string& flags) {
    const std::string out = folder() + "/" + name;
    const Outcome outcome = run("train " + yaml() + " --output " + out + " " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out;
  }
  static void expect_near(const std::string& run, const std::string& other, double relative) {
    const std::vector<Json> found = metrics(run + "/adapters/a"), expected = metrics(other + "/adapters/a");
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(number(found[i], "loss"), number(expected[i], "loss"),
                  relative * number(expected[i], "loss"))
          << i;
  }
  static std::string weights(const std::string& run, const char* adapter) {
    return read_file(run + "/adapters/" + adapter + "/adapter/adapter_model.safetensors");
  }
};

// The base is what its exported folder holds, and stays so.
TEST_F(QuantizedAdapters, TrainAsOnTheExportedBase) {
  for (const char* preset : {"W4A16_NVFP4", "INT8_WEIGHT_ONLY"}) {
    SCOPED_TRACE(preset);
    const std::string out =
        run_of(std::string("adapted_") + preset, std::string("--quantize.preset ") + preset + adapters("a"));
    const std::string base = folder() + "/base_" + preset;
    const Outcome exported = run("export " + out + " " + base);
    ASSERT_EQ(exported.code, 0) << exported.err;
    // Merged, an adapter belongs to what its base was rounded to.
    const std::string merge = "merge " + out + "/adapters/a/adapter " + out;
    const char* const warning = "was trained on a base that quantize rounded, and ";
    const Outcome plain = run(merge + "/merged_plain"), rounded = run(merge + "/merged --base " + base);
    EXPECT_EQ(plain.code + rounded.code, 0) << plain.err << rounded.err;
    EXPECT_NE(plain.err.find(warning), std::string::npos) << plain.err;
    EXPECT_EQ(rounded.err.find(warning), std::string::npos) << rounded.err;
    const std::string on_base =
        run_of(std::string("on_base_") + preset, "--model.path " + base + adapters("a"));
    // Codes times scales of integers are one rounding away from what training computes with.
    if (std::string_view(preset) == "W4A16_NVFP4") {
      EXPECT_EQ(losses(out + "/adapters/a"), losses(on_base + "/adapters/a"));
      EXPECT_EQ(weights(out, "a"), weights(on_base, "a"));
    }
    expect_near(out, on_base, 1e-5);
  }
}

// The calibration is that of the run, over rows of all its adapters, and is not repeated.
TEST_F(QuantizedAdapters, ResumeBitByBitWithTheCalibrationOfTheBeginning) {
  const std::string flags =
      "--quantize.preset NVFP4 --quantize.calibration_rows 6 --checkpoint.keep_last 9 " + adapters("ab");
  const std::string whole = run_of("two_whole", flags), cut = run_of("two_cut", flags);
  EXPECT_TRUE(exists(whole + "/calibration/step-000000/quantizers.safetensors"));
  for (const char* adapter : {"/adapters/a", "/adapters/b"})
    for (const char* later : {"/checkpoints/step-000010", "/checkpoints/step-000012", "/adapter"}) {
      ASSERT_TRUE(exists(cut + adapter + later)) << adapter << later;
      remove_all(cut + adapter + later);
    }
  const Outcome resumed = run("train " + yaml() + " --output " + cut + " " + flags);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("quantizers: amax of the calibration in " + cut + "/calibration\n"),
            std::string::npos)
      << resumed.err;
  EXPECT_EQ(resumed.err.find(" inputs on "), std::string::npos) << resumed.err;
  for (const char* adapter : {"a", "b"}) EXPECT_EQ(weights(cut, adapter), weights(whole, adapter)) << adapter;
}

// The amax of all adapters of a folder are those of one base. Others would fit in number and shape.
TEST_F(QuantizedAdapters, ACalibrationIsOfOneConfigurationAndBase) {
  const std::string out =
      run_of("calibrated_once", "--quantize.preset NVFP4 --train.steps 1" + adapters("a"));
  const std::string config = read_file(out + "/config.yaml");
  const auto refused = [&](const std::string& flags, const std::string& message) {
    expect_refused("train " + yaml() + " --train.steps 1 --output " + out + flags + adapters("b"), 2,
                   message);
    EXPECT_FALSE(exists(out + "/adapters/b"));
  };
  refused(" --quantize.preset FP8", "quantized otherwise:\n  quantize.preset: \"NVFP4\", now \"FP8\"");
  refused(" --quantize.preset NVFP4 --quantize.calibration mse", "quantize.calibration: null, now \"mse\"");
  refused("", "quantize.preset: \"NVFP4\", now \"\"");
  EXPECT_EQ(read_file(out + "/config.yaml"), config);
  run_of("calibrated_once", "--quantize.preset NVFP4 --train.steps 1" + adapters("b"));
  const auto other_base = [&](int seed) {
    remove_all(folder() + "/other_base");
    ASSERT_EQ(run(fmt::format("init {0}/qwen3-tiny {0}/other_base --seed {1}", folder(), seed)).code, 0);
  };
  other_base(9);
  const std::string on_other =
                        "--quantize.preset NVFP4 --train.steps 1 --model.path " + folder() + "/other_base",
                    message = "was calibrated on other weights than " + folder() + "/other_base holds now";
  expect_refused("train " + yaml() + " --output " + out + " " + on_other + adapters("c"), 2, message);
  const std::string own = run_of("calibrated_on_other", on_other + adapters("a"));
  other_base(10);
  expect_refused("export " + own + " " + folder() + "/of_another_base", 2, message);
}

// Of weights alone: ranks add up inputs in another order, and rounding makes that as large as a step between
// codes.
TEST_F(QuantizedAdapters, RanksTrainThemAsOneDoes) {
  const std::string flags = "--quantize.preset INT8_WEIGHT_ONLY " + adapters("a");
  const std::string one = run_of("lora_on_one", flags);
  for (const char* mesh :
       {"--ranks 2 --parallel.tensor 2", "--ranks 2 --parallel.shard 2 --parallel.shard_level 3"}) {
    SCOPED_TRACE(mesh);
    const std::string out =
        run_of(fmt::format("lora_on_two_{}", std::string_view(mesh).size()), flags + mesh);
    expect_near(out, one, 1e-4);
  }
}

// A whole model is compared with itself as it was before rounding, an adapter with the rounded base.
TEST_F(QuantizedAdapters, PreferencesAreComparedWithWhatTrainingBeganWith) {
  const std::string pairs = folder() + "/pairs.yaml";
  write_file(pairs, "recipe: preference\nmodel: {path: " + folder() + "/model}\ndata:\n  train: [" +
                        folder() +
                        "/pairs_train.jsonl]\n  max_length: 48\ntrain: {steps: 2, rows_per_step: 2}\n"
                        "quantize: {preset: INT4_BLOCKWISE_WEIGHT_ONLY, calibration_rows: 4, rules: "
                        "[{modules: 'layers.*', weights: int4, block: 32}]}\n");
  const double adapted =
      number(metrics(trained(pairs, "adapted_pairs", adapters("a")) + "/adapters/a").front(), "loss");
  EXPECT_NEAR(adapted, std::log(2), 1e-6);
  const double whole = number(metrics(trained(pairs, "whole_pairs")).front(), "loss");
  EXPECT_GT(std::abs(whole - std::log(2)), 1e-5);
  EXPECT_NEAR(whole, std::log(2), 0.1);
}

// Bit by bit; kernels of adapters add up rows of a rollout in another order, which moves no weight to another
// code.
TEST_F(QuantizedAdapters, RolloutsComputeWhatTrainingComputes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const auto train = [&](const std::string& preset, const std::string& adapter) {
    const std::string name = "grpo_" + preset + (adapter.empty() ? "" : "_adapted");
    const std::string cache =
        adapter.empty() ? " --quantize.rules '[{modules: \"layers.*.attention.qkv\", kv_cache: fp8}]'" : "";
    return metrics(trained(configuration(name, "  kl: {beta: 0.05}\n"), name,
                           " --quantize.calibration_rows 6 --quantize.preset " + preset + adapter + cache) +
                   (adapter.empty() ? "" : "/adapters/a"));
  };
  for (const char* preset : {"FP8", "NVFP4", "INT8"}) {
    SCOPED_TRACE(preset);
    const std::vector<Json> lines = train(preset, "");
    ASSERT_FALSE(lines.empty());
    for (const Json& line : lines) {
      EXPECT_EQ(number(line, "ratio"), 1);
      EXPECT_EQ(number(line, "log_prob_gap_largest"), 0);
    }
    EXPECT_NE(number(lines.front(), "kl"), 0);  // to the model before rounding
  }
  const std::vector<Json> lines = train("W4A16_NVFP4", adapters("a"));
  ASSERT_FALSE(lines.empty());
  for (const Json& line : lines) EXPECT_LT(number(line, "log_prob_gap_largest"), 1e-5);
  EXPECT_NEAR(number(lines.front(), "kl"), 0, 1e-9);  // to the rounded base
}

TEST_F(QuantizedAdapters, WhatCannotBeIsRefused) {
  const std::string train = "train " + yaml() + " --output " + folder() + "/none --quantize.preset ";
  expect_refused(train + "FP8 --model.base_dtype nf4" + adapters("a"), 2,
                 "[quantize] rounds the weights below adapters, which model.base_dtype keeps in ");
  expect_refused(train + "FP8 --recipe distill" + adapters("a"), 2,
                 "[distill.teacher] is missing: below adapters quantize rounds the weights for good");
  const std::string grpo =
      "train " + configuration("grpo_refused", "") + " --output " + folder() + "/none --quantize.preset ";
  expect_refused(
      grpo + "FP8 --quantize.rules '[{modules: \"layers.*\", inputs: fp8, inputs_amax: dynamic}]'", 2,
      "scales its input by the largest magnitude of a pass, which differs between rollouts and training");
  expect_refused(grpo + "FP8 --ranks 2 --grpo.engine.parallel.tensor 2", 2,
                 "[grpo.engine.parallel] is set, which copies weights as they are, but quantize rounds what "
                 "passes read of them");
}

}  // namespace
}  // namespace temper
