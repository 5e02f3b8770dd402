#include <cstdio>

#include "base/console.h"
#include "cli/arguments/key_help.h"
#include "cli/arguments/program.h"
#include "cli/arguments/ranks.h"
#include "cli/arguments/run_arguments.h"
#include "config/print.h"
#include "recipes/commands/calibrate_run.h"
#include "recipes/loop/train.h"
#include "recipes/plans/mesh.h"
#include "recipes/plans/quantizer_report.h"

namespace temper::cli {
namespace {

constexpr const char* kQuantizeUsage =
    R"(Find the scales of a quantized model without training it (calibration).

  temper quantize RUN.yaml --dry-run       # print what is quantized, and how
  temper quantize RUN.yaml [--KEY VALUE ...] --output runs/nvfp4
  temper export runs/nvfp4 models/nvfp4    # write the folder to deploy

The scales are kept in OUTPUT/calibration. Inputs are calibrated with rows of
data.train; formats that round weights alone need no data. A run of
temper train in the same folder begins with these scales.

What decides (docs/quantization.md):
  --model.path Qwen3-0.6B         the folder of the model
  --quantize.preset FP8_DEFAULT   a preset
  --quantize.rules '[{modules: "layers.0.*", weights: none, inputs: none}]'
  --quantize.per_expert false     experts of a layer share their scales

  --quantize.calibration mse      how scales are found

  --ranks N   on N ranks of this machine: docs/ranks.md
  --dry-run   print each quantizer and what decided; no weights are read
  --help all, --help KEY   every key of RUN.yaml, or one (--help quantize)
)";

int quantize(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kQuantizeUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kQuantizeUsage)) return 0;
  RunArguments parsed = parse_run_arguments(arguments, {"--dry-run"});
  const auto load = [&](recipes::RunConfig& config) { return config::dump(parsed.load(config)); };
  if (parsed.has("--dry-run")) {
    recipes::RunConfig config;
    load(config);
    print_exactly(shown(recipes::describe_quantizers(config)));
    return 0;
  }
  return run_on_ranks(parsed, {.name = "quantize",
                               .prepare =
                                   [&](int ranks) {
                                     recipes::RunConfig config;
                                     load(config);
                                     recipes::check_run(config);
                                     recipes::mesh_of(config, ranks);
                                     return true;
                                   },
                               .run =
                                   [&](collectives::Group& ranks) {
                                     recipes::RunConfig config;
                                     const std::string yaml = load(config);
                                     recipes::calibrate_run(config, yaml, ranks);
                                     if (ranks.rank() == 0)
                                       print_line("{}: calibrated; temper export {} FOLDER writes the model",
                                                  config.output, config.output);
                                   }});
}

}  // namespace

void add_quantize(Program& program) {
  program.add_raw("quantize", "Calibrate a quantized model, or show what is quantized.", quantize);
}

}  // namespace temper::cli
