// `temper quantize`, and runs that train with quantizers.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

TEST_F(Cli, QuantizeListsTheQuantizersOfARunAndWhatDecided) {
  const Outcome outcome = run("quantize " + yaml() +
                              " --dry-run --quantize.preset FP8 --quantize.rules "
                              "'[{modules: layers.0.mlp.*, weights: int4, block: 32, inputs: none}]'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line : {"layers.0.attention.qkv.weight_quantizer     1      fp8     tensor        [1, 1]  "
                           "   preset FP8_DEFAULT\n",
                           "layers.0.mlp.down.weight_quantizer          1      int4    blocks of 32  [128, "
                           "12]  rule 'layers.0.mlp.*'\n",
                           "preset FP8_DEFAULT: matches ", "; later rules decide 4 of them\n",
                           "rule 'layers.0.mlp.*': matches 3 tensors with 4 quantizers\n",
                           "temper export writes FP8, W4A16_AWQ\n"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("layers.0.mlp.down.input_quantizer"), std::string::npos) << outcome.out;
  const Outcome twice = run("quantize " + yaml() + " --dry-run --quantize.preset W4A8");
  EXPECT_EQ(twice.code, 0) << twice.err;
  for (const char* line :
       {"layers.0.mlp.down.weight_quantizer          1      int4, then fp8  blocks of 128  "
        "[128, 3]  preset W4A8_AWQ_BETA\n",
        "layers.0.mlp.down.input_quantizer           1      fp8             tensor",
        "temper export writes W4A8_AWQ\n"})
    EXPECT_NE(twice.out.find(line), std::string::npos) << line << "\n" << twice.out;
  const Outcome trained_only = run("quantize " + yaml() + " --dry-run --quantize.preset MXFP6");
  EXPECT_EQ(trained_only.code, 0) << trained_only.err;
  EXPECT_NE(trained_only.out.find("temper export cannot write this: [export] layers.0.attention.output."
                                  "weight_quantizer is mxfp6 per blocks of 32"),
            std::string::npos)
      << trained_only.out;
}

TEST_F(Cli, QuantizeRefusesWhatItCannotDo) {
  const std::string run_and = "quantize " + yaml() + " ";
  for (const char* how : {"", "--dry-run"})
    expect_refused(run_and + how, 2, "[quantize] has neither a preset nor rules: write quantize: {preset:");
  expect_refused(run_and + "--dry-run --quantize.preset FP8 --model.base_dtype nf4 --adapters '[{rank: 2}]'",
                 2, "[quantize] rounds the weights below adapters");
  expect_refused(run_and + "--dry-run --quantize.prest FP8", 2, "did you mean 'quantize.preset'?");
  expect_refused(run_and + "--dry-run --quantize.preset NVPF4", 2, "(did you mean 'NVFP4'?)");
  expect_refused(run_and + "--dry-run --quantize.preset FP8 --model.path nowhere", 2,
                 "[model.path] 'nowhere'");
}

// Stopped and resumed in the middle: the same losses and weights, bit by bit, with the amax of the beginning.
TEST_F(Cli, QuantizedRunsResumeBitByBit) {
  const std::string whole = folder() + "/quantized", cut = folder() + "/quantized_cut";
  const std::string options =
      " --quantize.preset NVFP4 --quantize.calibration_rows 6 --model.dtype bfloat16 --quantize.rules "
      "'[{modules: layers.0.mlp.down, weights: int8, inputs: fp8, inputs_per: token}]' "
      "--checkpoint.keep_last 9 --output ";
  const Outcome first = run("train " + yaml() + options + whole),
                again = run("train " + yaml() + options + cut);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("rule 'layers.0.mlp.down': matches 1 tensor with 2 quantizers"), std::string::npos)
      << first.err;
  EXPECT_NE(first.err.find("quantizers: calibrated 12 weights and 11 inputs on "), std::string::npos)
      << first.err;
  EXPECT_NE(first.err.find(" tokens in 6 rows"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("[quantize] 'temper export' cannot write what this run trains: [export] "
                           "layers.0.mlp.down.weight_quantizer is int8 per channel"),
            std::string::npos)
      << first.err;
  ASSERT_EQ(again.code, 0) << again.err;
  for (const char* later : {"/checkpoints/step-000010", "/checkpoints/step-000012", "/model"}) {
    ASSERT_TRUE(exists(cut + later)) << later;
    remove_all(cut + later);
  }
  const Outcome resumed = run("train " + yaml() + options + cut);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("after step 5"), std::string::npos) << resumed.err;
  EXPECT_EQ(resumed.err.find("quantizers: calibrated"), std::string::npos) << resumed.err;
  EXPECT_EQ(losses(cut), losses(whole));
  EXPECT_EQ(read_file(cut + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
  const std::string amax = "/checkpoints/step-000012/quantizers.safetensors";
  EXPECT_EQ(read_file(cut + amax), read_file(whole + amax));
  EXPECT_NE(read_file(whole + amax).find("layers.0.attention.qkv.input_quantizer._amax"), std::string::npos);
  // What is exported is the result in the formats that it was trained for.
  const std::string exported = folder() + "/exported";
  expect_refused("export " + whole + " " + exported, 2,
                 "[export] layers.0.mlp.down.weight_quantizer is int8 per channel with inputs in fp8 per "
                 "token, dynamic");
  // Rounding changes the trained weights.
  const std::string plain = folder() + "/plain_bf16";
  ASSERT_EQ(run("train " + yaml() + " --model.dtype bfloat16 --output " + plain).code, 0);
  EXPECT_NE(losses(plain), losses(whole));
  expect_refused("train " + yaml() + " --output " + whole + " --quantize.preset FP8 --model.dtype bfloat16",
                 2, "holds a run with another configuration");
}

// Inputs are calibrated over the rows of all ranks. (A value at the edge of two codes may fall to the other.)
TEST_F(Cli, QuantizedRunsOfSeveralRanksTrainWhatOneTrains) {
  const auto trained = [&](const std::string& name, const std::string& flags) {
    const std::string out = folder() + "/" + name;
    const Outcome outcome = run("train " + yaml() + " --output " + out +
                                " --quantize.preset FP8 --quantize.calibration_rows 5 " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("tokens in 5 rows"), std::string::npos) << outcome.err;
    return metrics(out);
  };
  const std::vector<Json> one = trained("quantized_on_one", "");
  int run = 0;
  for (const char* ranks : {"--ranks 2", "--ranks 2 --parallel.shard 2 --parallel.shard_level 2",
                            "--ranks 2 --parallel.shard 2 --parallel.shard_level 3"}) {
    const std::vector<Json> found = trained(fmt::format("quantized_on_two_{}", run++), ranks);
    ASSERT_EQ(found.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      const double loss = one[i].at("loss").as_double();
      EXPECT_NEAR(found[i].at("loss").as_double(), loss, (i == 0 ? 1e-5 : 2e-3) * loss)
          << ranks << ", line " << i;
    }
  }
}

// Of weights alone: sums of ranks that divide a layer differ in the last bits, which rounded inputs would
// make as large as a step between two codes.
TEST_F(Cli, RanksThatDivideQuantizedWeightsTrainWhatOneTrains) {
  const auto trained = [&](const std::string& name, const std::string& flags) {
    const std::string out = folder() + "/" + name;
    const Outcome outcome = run(
        "train " + yaml() + " --quantize.preset INT8_WEIGHT_ONLY --train.steps 4 --output " + out + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out;
  };
  const std::string one = trained("whole_weights", ""),
                    two = trained("divided_weights", " --ranks 2 --parallel.tensor 2");
  const std::vector<Json> expected = metrics(one), found = metrics(two);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double loss = expected[i].at("loss").as_double();
    EXPECT_NEAR(found[i].at("loss").as_double(), loss, 1e-5 * loss) << i;
  }
  // A checkpoint has every amax whole, and is exported like one rank's.
  const std::string amax = "/checkpoints/step-000004/quantizers.safetensors";
  EXPECT_EQ(read_file(two + amax), read_file(one + amax));
  EXPECT_EQ(run("export " + two + " " + folder() + "/exported_of_two").code, 0);
}

// Stopped on one mesh and resumed on another: the amax of the beginning, and the losses of a run that was
// never stopped. (A value at the edge of two codes may fall to the other.)
TEST_F(Cli, QuantizedRunsResumeOnAnotherMesh) {
  const std::string options =
      " --quantize.preset FP8 --quantize.calibration_rows 6 --checkpoint.keep_last 9 "
      "--output ";
  const std::string whole = folder() + "/one_mesh", cut = folder() + "/two_meshes";
  ASSERT_EQ(run("train " + yaml() + options + whole).code, 0);
  const Outcome first =
      run("train " + yaml() + options + cut + " --ranks 2 --parallel.shard 2 --parallel.shard_level 3");
  ASSERT_EQ(first.code, 0) << first.err;
  for (const char* later : {"/checkpoints/step-000010", "/checkpoints/step-000012", "/model"}) {
    ASSERT_TRUE(exists(cut + later)) << later;
    remove_all(cut + later);
  }
  const Outcome resumed = run("train " + yaml() + options + cut + " --ranks 2 --parallel.tensor 2");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("after step 5"), std::string::npos) << resumed.err;
  for (const char* line : {"quantizers: amax of", "quantizers: calibrated"})
    EXPECT_EQ(resumed.err.find(line), std::string::npos) << resumed.err;
  const std::string amax = "/quantizers.safetensors";
  EXPECT_EQ(read_file(cut + "/checkpoints/step-000012" + amax),
            read_file(cut + "/checkpoints/step-000005" + amax));
  const std::vector<Json> expected = metrics(whole), found = metrics(cut);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double loss = expected[i].at("loss").as_double();
    EXPECT_NEAR(found[i].at("loss").as_double(), loss, 2e-3 * loss) << i;
  }
  EXPECT_EQ(run("export " + cut + " " + folder() + "/exported_of_meshes").code, 0);
}

TEST_F(Cli, QuantizedRunsRefuseWhatTheyCannotTrain) {
  const std::string train = "train " + yaml() + " --output " + folder() + "/none --quantize.preset ",
                    fp8 = train + "FP8 ";
  expect_refused(fp8 + "--quantize.calibration awq_lite", 2,
                 "[quantize.calibration] awq_lite is for weights in blocks, and there are none");
  expect_refused(fp8 + "--quantize.calibration smoothquant", 2,
                 "[quantize.calibration] smoothquant is for weights and inputs in int8");
  expect_refused(train + "INT8_SMOOTHQUANT --quantize.smoothquant_alpha 1.5", 2,
                 "'quantize.smoothquant_alpha': expected a number at least 0 and at most 1");
  expect_refused("train " + yaml() + " --output " + folder() +
                     "/none --quantize.rules '[{modules: \"layers.*\", weights: int4}]' "
                     "--quantize.calibration awq_clip",
                 2, "[quantize.calibration] awq_clip needs calibrated inputs");
  expect_refused(fp8 + "--quantize.calibration entropi", 2, "entropy");
  expect_refused(fp8 + "--quantize.calibration entropy", 2,
                 "[quantize.calibration] entropy compares levels of integers");
}

TEST_F(Cli, AQuantizedRunIsExported) {
  const std::string out = folder() + "/for_export", exported = folder() + "/exported_fp8";
  const Outcome trained = run(
      "train " + yaml() + " --quantize.preset FP8 --train.steps 2 --model.dtype bfloat16 --output " + out);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(trained.err.find("cannot write"), std::string::npos) << trained.err;
  const Outcome outcome = run("export " + out + " " + exported);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find(": 24 quantizers, amax of step 2\n"), std::string::npos) << outcome.out;
  for (const char* file : {"config.json", "hf_quant_config.json", "tokenizer.json", "model.safetensors"})
    EXPECT_TRUE(exists(exported + "/" + file)) << file;
  EXPECT_LT(read_file(exported + "/model.safetensors").size(),
            read_file(out + "/model/model.safetensors").size());
  expect_refused("export " + out + " " + exported, 2, "exists already");
  expect_refused("quantize --dry-run --quantize.preset FP8 --model.path " + exported, 2,
                 "[quantize] the model " + exported + " is quantized already (modelopt FP8)");
  expect_refused("export " + exported + " " + folder() + "/other", 2,
                 "has no config.yaml; expected the folder of a run");
  const std::string plain = folder() + "/never_quantized";
  ASSERT_EQ(run("train " + yaml() + " --train.steps 1 --output " + plain).code, 0);
  expect_refused("export " + plain + " " + folder() + "/other", 2,
                 "its model is a plain folder already, " + plain + "/model");
  const std::string adapted = folder() + "/never_quantized_adapter";
  ASSERT_EQ(run("train " + yaml() + " --train.steps 1 --adapters '[{name: a}]' --output " + adapted).code, 0);
  expect_refused("export " + adapted + " " + folder() + "/other", 2,
                 "its adapters are plain folders already, " + adapted + "/adapters/a/adapter (temper merge");
}

TEST_F(Cli, AnExportedFolderIsAModelLikeOthers) {
  const std::string out = folder() + "/to_be_read", exported = folder() + "/exported_int8";
  const Outcome trained = run("train " + yaml() + " --quantize.preset INT8 --train.steps 2 --output " + out);
  ASSERT_EQ(trained.code, 0) << trained.err;
  ASSERT_EQ(run("export " + out + " " + exported).code, 0);
  const std::string said = "matrices are quantized (modelopt W8A8_SQ_PER_CHANNEL)";
  const Outcome answer = run("generate " + exported + " --prompt 1+1 --max-new-tokens 2");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_NE(answer.err.find(said), std::string::npos) << answer.err;

  // Perplexity compared with the model's before it was rounded.
  const Outcome both = run("eval " + yaml() + " --model.path " + out + "/model --beside " + exported);
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_NE(both.err.find("[" + exported + "] inputs of 12 modules are rounded as the folder says"),
            std::string::npos)
      << both.err;
  std::istringstream table(both.out);
  std::string title;
  std::getline(table, title);
  double losses[2] = {}, perplexities[2] = {}, tokens[2] = {};
  for (int i = 0; i < 2; ++i) {
    std::string model;
    table >> model >> tokens[i] >> losses[i] >> perplexities[i];
    EXPECT_EQ(model, i == 0 ? out + "/model" : exported);
    EXPECT_NEAR(perplexities[i], std::exp(losses[i]), 1e-4 * perplexities[i]) << both.out;
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_GT(tokens[0], 0);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NEAR(losses[0], losses[1], 0.05 * losses[0]);
  expect_refused("eval " + yaml() + " --adapters '[{rank: 4}]'", 2, "is not there; train it first");

  // Training starts from the numbers that the codes mean, on ranks from the same; what it leaves is plain.
  const std::string train = "train " + yaml() + " --train.steps 2 --model.path " + exported + " --output ";
  const Outcome tuned = run(train + folder() + "/tuned");
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_NE(tuned.err.find(said), std::string::npos) << tuned.err;
  EXPECT_EQ(read_file(folder() + "/tuned/model/config.json").find("quantization_config"), std::string::npos);
  const Outcome divided = run(train + folder() + "/tuned_by_two --ranks 2 --parallel.tensor 2");
  ASSERT_EQ(divided.code, 0) << divided.err;
  const std::vector<Json> one = metrics(folder() + "/tuned"), two = metrics(folder() + "/tuned_by_two");
  EXPECT_NEAR(two.at(0).at("loss").as_double(), one.at(0).at("loss").as_double(),
              1e-5 * one.at(0).at("loss").as_double());
  expect_refused(train + folder() + "/none --quantize.preset INT8", 2,
                 "[quantize] the model " + exported + " is quantized already");
}

// What is exported is made of the weights before rounding, never of what an earlier rounding gave: a run that
// was stopped and resumed leaves the same bytes, and so does a second export.
TEST_F(Cli, ExportsOfResumedRunsHaveTheSameBytes) {
  for (const char* preset : {"MXFP8", "NVFP4"}) {
    SCOPED_TRACE(preset);
    const std::string whole = folder() + "/whole_" + preset, cut = folder() + "/cut_" + preset;
    const std::string options =
        std::string(" --model.dtype bfloat16 --checkpoint.keep_last 9 --quantize.preset ") + preset +
        " --output ";
    for (const std::string& out : {whole, cut}) {
      const Outcome trained = run("train " + yaml() + options + out);
      ASSERT_EQ(trained.code, 0) << trained.err;
    }
    for (const char* later : {"/checkpoints/step-000010", "/checkpoints/step-000012", "/model"})
      remove_all(cut + later);
    const Outcome resumed = run("train " + yaml() + options + cut);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("after step 5"), std::string::npos) << resumed.err;
    const auto exported = [&](const std::string& from, const std::string& to) {
      const Outcome outcome = run("export " + from + " " + to);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return read_file(to + "/model.safetensors");
    };
    const std::string bytes = exported(whole, whole + "_codes");
    EXPECT_FALSE(bytes.empty());
    EXPECT_EQ(exported(cut, cut + "_codes"), bytes);
    EXPECT_EQ(exported(whole, whole + "_again"), bytes);
  }
}

// Integers with zero points: a run that is resumed has the bits of one that was not, and its folder means
// what it was trained with.
TEST_F(Cli, ZeroPointsAreTrainedResumedExportedAndRead) {
  const std::string whole = folder() + "/zeros", cut = folder() + "/zeros_cut";
  const std::string options =
      " --checkpoint.keep_last 9 --quantize.preset W4A16_ASYM --quantize.rules "
      "'[{modules: layers.0.*, weights: int8, inputs: int8, inputs_symmetric: false}]'";
  const Outcome listed =
      run("quantize " + yaml() + " --dry-run" + options.substr(options.find(" --quantize.preset")));
  EXPECT_EQ(listed.code, 0) << listed.err;
  for (const char* text : {"int4 with zero points  blocks of 128  [128, 3]  preset W4A16_ASYM\n",
                           "int8 with zero points  tensor ",
                           "temper export writes W4A16_ASYM, W8A8, by --form compressed-tensors\n"})
    EXPECT_NE(listed.out.find(text), std::string::npos) << text << "\n" << listed.out;
  for (const std::string& out : {whole, cut}) {
    const Outcome trained = run("train " + yaml() + options + " --output " + out);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(trained.err.find("cannot write"), std::string::npos) << trained.err;
  }
  for (const char* later : {"/checkpoints/step-000010", "/checkpoints/step-000012", "/model"})
    remove_all(cut + later);
  const Outcome resumed = run("train " + yaml() + options + " --output " + cut);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("after step 5"), std::string::npos) << resumed.err;
  EXPECT_EQ(losses(cut), losses(whole));
  const std::string state = "/checkpoints/step-000012/quantizers.safetensors";
  EXPECT_EQ(read_file(cut + state), read_file(whole + state));
  for (const char* name :
       {"layers.0.attention.qkv.input_quantizer._low", "layers.0.attention.qkv.input_quantizer._high",
        "layers.1.mlp.down.weight_quantizer._low"})
    EXPECT_NE(read_file(whole + state).find(name), std::string::npos) << name;
  const std::string exported = folder() + "/exported_zeros";
  expect_refused("export " + whole + " " + exported, 2,
                 "nvidia-modelopt's folders have no tensors for: write --form");
  ASSERT_EQ(run("export --form compressed-tensors " + whole + " " + exported).code, 0);
  const Outcome answer = run("generate " + exported + " --prompt 1+1 --max-new-tokens 2");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_NE(answer.err.find("matrices are quantized (compressed-tensors mixed-precision)"), std::string::npos)
      << answer.err;
  EXPECT_EQ(run("eval " + yaml() + " --model.path " + whole + "/model --beside " + exported).code, 0);
  expect_refused(
      "train " + yaml() + " --output " + folder() +
          "/none --quantize.preset W4A16_ASYM --quantize.calibration awq_lite",
      2,
      "[quantize.calibration] awq_lite finds factors of columns, which folders with zero points have no "
      "tensors for, and layers.0.attention.qkv.weight_quantizer is int4 with zero points");
}

// A plan knows what a quantized run takes, and a dry run stores nothing.
TEST_F(Cli, QuantizedRunsArePlanned) {
  const std::string out = folder() + "/quantized_plan";
  for (const char* flags : {"FP8", "W4A8", "NVFP4 --adapters '[{name: a, rank: 2}]'"}) {
    const Outcome dry = run("train " + yaml() + " --output " + out + " --dry-run --quantize.preset " + flags);
    EXPECT_EQ(dry.code, 0) << dry.err;
    EXPECT_NE(dry.out.find("\ntime           about "), std::string::npos) << dry.out;
    EXPECT_FALSE(exists(out));
    EXPECT_EQ(dry.err.find("has no effect"), std::string::npos) << dry.err;
  }
  const Outcome dry = run("train " + yaml() + " --output " + out +
                          " --dry-run --quantize.preset INT8_WEIGHT_ONLY --quantize.calibration_rows 6 "
                          "--quantize.per_expert false");
  for (const char* line :
       {"[quantize.per_expert] is false, and has no effect: no experts are quantized",
        "[quantize.calibration_rows] is 6, and has no effect: nothing that passes is calibrated"})
    EXPECT_NE(dry.err.find(line), std::string::npos) << line << "\n" << dry.err;
}

}  // namespace
}  // namespace temper
