#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/key_help.h"
#include "cli/program.h"
#include "cli/run_arguments.h"
#include "recipes/quantizer_report.h"

namespace temper::cli {
namespace {

constexpr const char* kQuantizeUsage =
    R"(Show which weights and inputs a run quantizes, how, and which rule decided.

  temper quantize RUN.yaml --dry-run [--KEY VALUE ...]
  temper quantize --dry-run --model.path Qwen3-0.6B --quantize.preset NVFP4

What the run's key quantize says (docs/quantization.md):
  --quantize.preset FP8_DEFAULT   a ready-made configuration
  --quantize.rules '[{modules: "layers.0.*", weights: none, inputs: none}]'
  --quantize.per_expert false     experts of a layer share their scales

  --dry-run   print the table; no weights are read (the only way so far)
  --help all, --help KEY   every key of RUN.yaml, or one (--help quantize)
)";

int quantize(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kQuantizeUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kQuantizeUsage)) return 0;
  const RunArguments parsed = parse_run_arguments(arguments, {"--dry-run"});
  if (!parsed.has("--dry-run"))
    fail("[command line] 'temper quantize' prints what would be quantized: add --dry-run");
  recipes::RunConfig config;
  config::Schema schema = config::schema_of(config);
  parsed.load(schema);
  std::fputs(recipes::describe_quantizers(config).c_str(), stdout);
  return 0;
}

}  // namespace

void add_quantize(Program& program) {
  program.add("quantize", "Show which weights and inputs a run quantizes.", [](Options& options) {
    auto arguments = std::make_shared<std::vector<std::string>>();
    options.raw(*arguments);
    return [arguments] { return quantize(*arguments); };
  });
}

}  // namespace temper::cli
