// Runs whose calibrations give factors to columns: SmoothQuant and AWQ.
#include <cmath>
#include <sstream>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

// Stopped and resumed in the middle: the same losses, weights and factors, bit by bit.
TEST_F(Cli, RunsWithFactorsOfColumnsResumeBitByBit) {
  for (const std::string preset : {"INT8_SMOOTHQUANT", "INT4_AWQ", "W4A8_AWQ"}) {
    const std::string whole = folder() + "/" + preset, cut = whole + "_cut";
    const std::string options =
        " --quantize.preset " + preset +
        " --quantize.calibration_rows 6 --model.dtype bfloat16 --checkpoint.keep_last 9 "
        "--output ";
    const Outcome first = run("train " + yaml() + options + whole),
                  again = run("train " + yaml() + options + cut);
    ASSERT_EQ(first.code, 0) << first.err;
    EXPECT_NE(first.err.find(" tokens in 6 rows"), std::string::npos) << first.err;
    ASSERT_EQ(again.code, 0) << again.err;
    for (const char* later : {"/checkpoints/step-000010", "/checkpoints/step-000012", "/model"}) {
      ASSERT_TRUE(exists(cut + later)) << later;
      remove_all(cut + later);
    }
    const Outcome resumed = run("train " + yaml() + options + cut);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("after step 5"), std::string::npos) << resumed.err;
    EXPECT_EQ(losses(cut), losses(whole));
    EXPECT_EQ(read_file(cut + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
    const std::string state = "/checkpoints/step-000012/quantizers.safetensors";
    EXPECT_EQ(read_file(cut + state), read_file(whole + state));
    EXPECT_NE(read_file(whole + state).find("layers.0.attention.output.input_quantizer._pre_quant_scale"),
              std::string::npos);
  }
}

// What is exported is a model whose numbers are near those that were trained.
TEST_F(Cli, ModelsWithFactorsOfColumnsAreExportedAndRead) {
  for (const auto& [preset, algorithm] :
       {std::pair<std::string, std::string>{"INT8_SMOOTHQUANT", "W8A8_SQ_PER_CHANNEL"},
        {"INT4_AWQ", "W4A16_AWQ"},
        {"W4A8", "W4A8_AWQ"},
        {"NVFP4_AWQ_LITE", "NVFP4_AWQ"}}) {
    const std::string out = folder() + "/scaled_" + preset, exported = out + "_exported";
    const Outcome trained =
        run("train " + yaml() + " --quantize.preset " + preset + " --train.steps 2 --output " + out);
    ASSERT_EQ(trained.code, 0) << trained.err;
    ASSERT_EQ(run("export " + out + " " + exported).code, 0);
    const std::string tensors = read_file(exported + "/model.safetensors");
    EXPECT_NE(tensors.find("model.layers.0.mlp.down_proj.pre_quant_scale"), std::string::npos);
    // Norms take over what AWQ multiplies their results by.
    EXPECT_EQ(tensors.find("model.layers.0.self_attn.q_proj.pre_quant_scale") == std::string::npos,
              preset != "INT8_SMOOTHQUANT");
    const Outcome answer = run("generate " + exported + " --prompt 1+1 --max-new-tokens 2");
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_NE(answer.err.find("matrices are quantized (modelopt " + algorithm + ")"), std::string::npos)
        << answer.err;
    const Outcome both = run("eval " + yaml() + " --model.path " + out + "/model --beside " + exported);
    ASSERT_EQ(both.code, 0) << both.err;
    std::istringstream table(both.out);
    std::string title, model;
    std::getline(table, title);
    double losses[2] = {}, tokens = 0, perplexity = 0;
    for (double& loss : losses) table >> model >> tokens >> loss >> perplexity;
    EXPECT_NE(losses[0], losses[1]);
    EXPECT_NEAR(losses[0], losses[1], 0.05 * losses[0]);
  }
}

// (After an update a value at the edge of two codes may fall to the other.)
TEST_F(Cli, RanksThatDivideColumnsFindTheFactorsOfOne) {
  const auto trained = [&](const std::string& name, const std::string& flags) {
    const std::string out = folder() + "/" + name;
    const Outcome outcome =
        run("train " + yaml() +
            " --quantize.preset INT4_AWQ --quantize.rules "
            "'[{modules: \"layers.*\", weights: int4, block: 32}]' --train.steps 4 --output " +
            out + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return metrics(out);
  };
  const std::vector<Json> one = trained("factors_of_one", "");
  for (const char* flags : {" --ranks 2 --parallel.tensor 2", " --ranks 2"}) {
    const std::vector<Json> two =
        trained("factors_of" + std::to_string(std::string_view(flags).size()), flags);
    ASSERT_EQ(two.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      const double loss = one[i].at("loss").as_double();
      EXPECT_NEAR(two[i].at("loss").as_double(), loss, (i == 0 ? 1e-5 : 2e-3) * loss) << flags << " " << i;
    }
  }
}

}  // namespace
}  // namespace temper
