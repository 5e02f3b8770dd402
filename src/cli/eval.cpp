#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/adapters.h"
#include "cli/key_help.h"
#include "cli/program.h"
#include "cli/run_arguments.h"
#include "recipes/evaluation.h"
#include "recipes/recipe.h"

namespace temper::cli {
namespace {

constexpr const char* kEvalUsage =
    R"(Print loss and perplexity of a model on data, and of another one beside it.

  temper eval --model.path MODEL --data.eval held_out.jsonl
  temper eval --model.path MODEL --data.eval held_out.jsonl --adapter FOLDER
  temper eval RUN.yaml [--KEY VALUE ...] --beside OTHER_MODEL

  --adapter FOLDER  the model with this adapter: FOLDER, NAME=FOLDER, or none
                    for the model alone; may be repeated
  --beside FOLDER   another model on the same data, for example one that was
                    exported
  --help all, --help KEY   every key of RUN.yaml, or one (--help data.eval)

The rows are those of data.eval, or what data.eval_fraction holds out, or else
those of data.train. The adapters of a RUN.yaml are read from the run's folder,
as training left them, each with its own rows. Models are read as they are:
quantize is ignored. The codes of quantized folders count as the numbers that
they mean, and inputs, keys and values are rounded as the folder says.
)";

int evaluate(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kEvalUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kEvalUsage)) return 0;
  RunArguments parsed = parse_run_arguments(arguments, {});
  const std::string beside = parsed.take("--beside").value_or("");
  const std::vector<Adapters::Given> given = Adapters::parse(parsed.take_all("--adapter"));
  recipes::RunConfig config;
  parsed.load(config);
  std::vector<recipes::EvaluatedAdapter> adapters;
  if (!given.empty()) config.adapters.clear();
  for (const auto& [name, folder] : given) {
    adapters.push_back({name, folder});
    if (!folder.empty()) config.adapters.push_back({.name = name, .from = folder});
  }
  recipes::check_recipe(config);
  const std::vector<recipes::Evaluation> all = recipes::evaluate_models(config, adapters, beside);
  size_t width = 5;
  for (const recipes::Evaluation& each : all) width = std::max(width, each.name.size());
  std::printf("%-*s  %10s  %9s  %10s\n", static_cast<int>(width), "model", "tokens", "loss", "perplexity");
  for (const recipes::Evaluation& each : all)
    std::printf("%-*s  %10lld  %9.6f  %10.6g\n", static_cast<int>(width), each.name.c_str(),
                static_cast<long long>(each.target_tokens), each.loss, each.perplexity());
  return 0;
}

}  // namespace

void add_eval(Program& program) {
  program.add("eval", "Print loss and perplexity of a model on data.", [](Options& options) {
    auto arguments = std::make_shared<std::vector<std::string>>();
    options.raw(*arguments);
    return [arguments] { return evaluate(*arguments); };
  });
}

}  // namespace temper::cli
