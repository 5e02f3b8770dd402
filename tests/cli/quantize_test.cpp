// `temper quantize`, and runs that train with quantizers.
#include <algorithm>

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
                           "preset FP8_DEFAULT: matches ", ", of which later rules decide 4\n",
                           "rule 'layers.0.mlp.*': matches 4 quantizers\n"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("layers.0.mlp.down.input_quantizer"), std::string::npos) << outcome.out;
}

TEST_F(Cli, QuantizeRefusesWhatItCannotDo) {
  const std::string run_and = "quantize " + yaml() + " ";
  expect_refused(run_and, 2,
                 "[command line] 'temper quantize' prints what would be quantized: add --dry-run");
  expect_refused(run_and + "--dry-run", 2,
                 "[quantize] has neither a preset nor rules: write quantize: {preset:");
  expect_refused(run_and + "--dry-run --quantize.prest FP8", 2, "did you mean 'quantize.preset'?");
  expect_refused(run_and + "--dry-run --quantize.preset NVPF4", 2, "(did you mean 'NVFP4'?)");
  expect_refused(run_and + "--dry-run --quantize.preset FP8 --model.path nowhere", 2,
                 "[model.path] 'nowhere'");
}

}  // namespace
}  // namespace temper
