#include <cstdio>
#include <memory>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/arguments/program.h"
#include "models/model.h"

namespace temper::cli {
namespace {

struct InitArguments {
  std::string source, output;
  int64_t seed = 0;
};

// The folder of a config.json, which may be named itself.
std::string folder_of(const std::string& source) {
  if (is_directory(source)) return source;
  if (exists(source) && file_name(source) == "config.json") return parent_path(source);
  fail("[{}] is not a folder; expected one with config.json and the tokenizer's files", source);
}

int init(const InitArguments& arguments) {
  if (arguments.seed < 0) fail("[--seed] {} is out of range; expected 0 or more", arguments.seed);
  if (exists(arguments.output))
    fail("[{}] exists already; choose another folder or remove it", arguments.output);
  const std::string source = folder_of(arguments.source);
  const std::string where = join_path(source, "config.json");
  const auto model = models::build_model(Json::parse_file(where), where, {});
  auto& parameters = model->decoder.parameters();
  if (model->decoder.config().published.text)
    log_warning(
        fmt::format("[{}] is of a model that also reads pictures: the text alone is made, without a tower; "
                    "programs that read pictures draw one at random",
                    where));
  parameters.initialize(static_cast<uint64_t>(arguments.seed), model->decoder.config().initializer_range);
  models::save_model(*model, arguments.output, source);
  print_line("{}: {} parameters", arguments.output, parameters.num_elements());
  return 0;
}

}  // namespace

void add_init(Program& program) {
  program.add("init", "Make a model with random weights from a config.json.", [](Options& options) {
    auto arguments = std::make_shared<InitArguments>();
    options.positional("source", arguments->source, "A folder with config.json and the tokenizer's files.");
    options.positional("output", arguments->output, "The new model's folder.");
    options.option("--seed", arguments->seed, "The seed of the random numbers. Omitted: 0.");
    options.example("temper init models/Qwen3-0.6B models/untrained");
    return [arguments] { return init(*arguments); };
  });
}

}  // namespace temper::cli
