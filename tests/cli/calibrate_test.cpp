// `temper quantize` without training, and what follows from its folder.
#include <filesystem>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

std::string scales_of(const std::string& state) { return read_file(state + "/quantizers.safetensors"); }

// What is found without training is what training would begin with, is exported with the weights that it was
// found with, and is what a run in the folder begins with, whatever its data.
TEST_F(Cli, QuantizeCalibratesWithoutTraining) {
  const std::string out = folder() + "/calibrated", exported = out + "_nvfp4",
                    trained = folder() + "/trained",
                    nvfp4 = " --quantize.preset NVFP4 --train.steps 2 --output ",
                    flags = " --quantize.calibration mse" + nvfp4;
  const Outcome found = run("quantize " + yaml() + flags + out);
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, out + ": calibrated; temper export " + out + " FOLDER writes the model\n");
  for (const char* made : {"/model", "/checkpoints", "/metrics.jsonl"})
    EXPECT_FALSE(exists(out + made)) << made;
  ASSERT_EQ(run("train " + yaml() + flags + trained).code, 0);
  const std::string scales = scales_of(out + "/calibration/step-000000");
  EXPECT_TRUE(scales == scales_of(trained + "/checkpoints/step-000002"));

  const Outcome written = run("export " + out + " " + exported);
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, exported + ": 24 quantizers, amax of step 0\n");
  ASSERT_EQ(run("export " + trained + " " + trained + "_nvfp4").code, 0);
  const auto weights = [](const std::string& of) { return read_file(of + "/model.safetensors"); };
  EXPECT_FALSE(weights(exported) == weights(trained + "_nvfp4"));
  EXPECT_EQ(read_file(exported + "/hf_quant_config.json"),
            read_file(trained + "_nvfp4/hf_quant_config.json"));
  // Below an adapter the same base is rounded.
  const std::string adapted = folder() + "/adapted";
  ASSERT_EQ(run("train " + yaml() + flags + adapted + " --adapters '[{name: a, rank: 2}]'").code, 0);
  ASSERT_EQ(run("export " + adapted + " " + adapted + "_nvfp4").code, 0);
  EXPECT_TRUE(weights(exported) == weights(adapted + "_nvfp4"));

  expect_refused("quantize " + yaml() + flags + out, 2,
                 out + "/calibration] has amax that were found before");
  expect_refused("quantize " + yaml() + flags + trained, 2,
                 trained + "/checkpoints] has amax that were found");
  expect_refused("train " + yaml() + nvfp4 + out + " --quantize.calibration max", 2,
                 "quantized otherwise:\n  quantize.calibration: \"mse\", now \"max\"");
  const std::string other_data = " --data.train " + folder() + "/minus_train.jsonl";
  const Outcome begun = run("train " + yaml() + flags + out + other_data);
  ASSERT_EQ(begun.code, 0) << begun.err;
  EXPECT_EQ(begun.err.find("quantizers: calibrated 12"), std::string::npos) << begun.err;
  EXPECT_TRUE(scales_of(out + "/checkpoints/step-000002") == scales);
  // From here on it is the trained model that is exported, and none before there is one.
  ASSERT_EQ(run("export " + out + " " + out + "_trained").code, 0);
  EXPECT_FALSE(weights(out + "_trained") == weights(exported));
  remove_all(out + "/model");
  expect_refused("export " + out + " " + folder() + "/other", 2,
                 "has no model yet: let the run finish first");
}

// Ranks that divide weights find what one rank finds.
TEST_F(Cli, QuantizeCalibratesOnSeveralRanks) {
  const std::string one = folder() + "/calibrated_by_one", two = folder() + "/calibrated_by_two",
                    quantize = "quantize " + yaml() +
                               " --quantize.preset INT8_WEIGHT_ONLY --quantize.calibration percentile "
                               "--quantize.percentile 97 --quantize.rules "
                               "'[{modules: layers.0.mlp.*, weights: nvfp4, inputs: none}]' --output ";
  ASSERT_EQ(run(quantize + one).code, 0);
  const Outcome found = run(quantize + two + " --ranks 2 --parallel.tensor 2");
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, two + ": calibrated; temper export " + two + " FOLDER writes the model\n");
  EXPECT_NE(found.err.find(", tensor 2"), std::string::npos) << found.err;
  EXPECT_TRUE(scales_of(two + "/calibration/step-000000") == scales_of(one + "/calibration/step-000000"));
  const Outcome exported = run("export " + two + " " + two + "_out");
  EXPECT_EQ(exported.code, 0) << exported.err;
  expect_refused(quantize + folder() + "/none --ranks 2 --parallel.tensor 3", 2, "[parallel");
  expect_refused(quantize + two + " --ranks 2", 2, "has amax that were found before");
}

TEST_F(Cli, WeightsAloneAreCalibratedWithoutData) {
  const std::string of_model = "quantize --data.max_length 64 --model.path " + folder() + "/model --output ",
                    out = folder() + "/weights_alone";
  const Outcome found = run(of_model + out + " --quantize.preset INT8_WEIGHT_ONLY");
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_NE(found.err.find("quantizers: calibrated 12 weights\n"), std::string::npos) << found.err;
  EXPECT_EQ(run("export " + out + " " + out + "_int8").code, 0);
  expect_refused(of_model + folder() + "/inputs_too --quantize.preset FP8", 2,
                 "[data.train] is missing: layers.0.attention.qkv.input_quantizer is calibrated with rows");
  expect_refused(of_model + folder() + "/inputs_too --quantize.preset INT4_AWQ", 2,
                 "[data.train] is missing: layers.0.attention.qkv.weight_quantizer is calibrated with rows");
  expect_refused("quantize --data.max_length 64 --quantize.preset INT8_WEIGHT_ONLY --model.path " + out +
                     "_int8 --output " + folder() + "/inputs_too",
                 2, "is quantized already (modelopt W8A16)");
  EXPECT_FALSE(exists(folder() + "/inputs_too"));
  // Of other weights under the same name.
  const std::string model = folder() + "/passing", own = folder() + "/of_passing";
  std::filesystem::copy(folder() + "/model", model);
  ASSERT_EQ(run("quantize --data.max_length 64 --quantize.preset INT8_WEIGHT_ONLY --model.path " + model +
                " --output " + own)
                .code,
            0);
  remove_all(model);
  ASSERT_EQ(run(fmt::format("init {0}/qwen3-tiny {1} --seed 9", folder(), model)).code, 0);
  expect_refused("export " + own + " " + own + "_int8", 2, "was calibrated on other weights than " + model);
}

}  // namespace
}  // namespace temper
