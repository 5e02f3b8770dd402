#include <cstdio>
#include <memory>

#include "cli/program.h"
#include "cli/run_arguments.h"
#include "config/load.h"
#include "config/print.h"
#include "recipes/run.h"

namespace temper::cli {
namespace {

constexpr const char* kUsage =
    "Train a model of a Hugging Face folder, or adapters (LoRA) for it: on examples (recipe sft), or on "
    "judged\n"
    "answers (recipe preference).\n"
    "Usage: temper train [RUN.yaml] [--KEY VALUE ...] [--dry-run] [--explain-memory] [--profile]\n\n"
    "  --dry-run         check configuration, files, tokenizer, template, one batch, disk and memory; train "
    "nothing\n"
    "  --explain-memory  print memory by region, planned and actual\n"
    "  --profile         trace ten steps, after two to warm up: trace.json in the run's folder for\n"
    "                    ui.perfetto.dev, and a table of where time goes, by op\n"
    "  --help            this text\n\n"
    "Keys, in YAML or as flags (--train.optimizer.lr 2e-5):\n";

int train(const std::vector<std::string>& arguments) {
  const RunArguments parsed =
      parse_run_arguments(arguments, {"--dry-run", "--explain-memory", "--profile", "--help", "-h"});
  recipes::RunConfig config;
  config::Schema schema = config::schema_of(config);
  if (parsed.has("--help") || parsed.has("-h") || arguments.empty()) {
    std::fputs((kUsage + config::help(schema)).c_str(), stdout);
    return 0;
  }
  config::load(schema, parsed.yaml_file, parsed.flags);
  recipes::run(config, config::dump(schema),
               {parsed.has("--dry-run"), parsed.has("--explain-memory"), parsed.has("--profile") ? 10 : 0});
  return 0;
}

}  // namespace

void add_train(Program& program) {
  program.add("train", "train a model as a configuration says", [](Options& options) {
    auto arguments = std::make_shared<std::vector<std::string>>();
    options.raw(*arguments);
    return [arguments] { return train(*arguments); };
  });
}

}  // namespace temper::cli
