#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/arguments/adapters.h"
#include "cli/arguments/key_help.h"
#include "cli/arguments/program.h"
#include "cli/arguments/run_arguments.h"
#include "recipes/keys/recipe.h"
#include "recipes/loop/evaluation.h"
#include "recipes/parts/run_files.h"

namespace temper::cli {
namespace {

constexpr const char* kEvalUsage =
    R"(Print loss and perplexity of a model on data, and compare it with another one.

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
as training left them, each with its own rows; of a run without adapters
--model.path says which model, RUN/model or another. Models are read as they
are: quantize is ignored. The codes of quantized folders count as the numbers
that they mean, and inputs, keys and values are rounded as the folder says.
)";

// A run's folder has two models, that which training began from and that which it left.
void check_model_is_chosen(const RunArguments& parsed, const recipes::RunConfig& config) {
  RunArguments arguments = parsed;
  if (parsed.yaml_file.empty() || !config.adapters.empty() || !arguments.take_all("--model.path").empty())
    return;
  const bool is_folder = is_directory(parsed.yaml_file);
  const std::string run = is_folder ? parsed.yaml_file : config.output,
                    trained = recipes::RunFiles{run}.model();
  if (is_folder && !is_directory(trained))
    fail(
        "[{}] is the folder of a run that has no model yet; finish it (temper train), or write "
        "--model.path {} for the model that it began from",
        run, config.model.path);
  if (is_folder)
    fail(
        "[{}] is the folder of a run, expected one of its models: write --model.path {} for the one that it "
        "trained, or --model.path {} for the one that it began from",
        run, trained, config.model.path);
  if (!run.empty() && is_directory(trained))
    log_info(
        fmt::format("[model.path] {} is the model that the run began from; the one that it trained is {}",
                    config.model.path, trained));
}

int evaluate(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kEvalUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kEvalUsage)) return 0;
  RunArguments parsed = parse_run_arguments(arguments, {});
  const std::string other = parsed.take("--beside").value_or("");
  const std::vector<Adapters::Given> given = Adapters::parse(parsed.take_all("--adapter"));
  recipes::RunConfig config;
  parsed.load(config);
  if (given.empty()) check_model_is_chosen(parsed, config);
  std::vector<recipes::EvaluatedAdapter> adapters;
  if (!given.empty()) config.adapters.clear();
  for (const auto& [name, folder] : given) {
    adapters.push_back({name, folder});
    if (!folder.empty()) config.adapters.push_back({.name = name, .from = folder});
  }
  recipes::check_recipe(config);
  const std::vector<recipes::Evaluation> all = recipes::evaluate_models(config, adapters, other);
  size_t width = 5;
  for (const recipes::Evaluation& each : all) width = std::max(width, each.name.size());
  print_line("{:<{}}  {:>10}  {:>9}  {:>10}", "model", width, "tokens", "loss", "perplexity");
  for (const recipes::Evaluation& each : all)
    print_line("{:<{}}  {:>10}  {:>9.6f}  {:>10.6g}", each.name, width, each.target_tokens, each.loss,
               each.perplexity());
  for (const recipes::Evaluation& each : all)
    if (!std::isfinite(each.loss))
      log_warning(
          fmt::format("[{}] the loss is not finite: weights of the model are not, or results of its "
                      "layers are too large for their precision",
                      each.name));
  return 0;
}

}  // namespace

void add_eval(Program& program) {
  program.add_raw("eval", "Print loss and perplexity of a model on data.", evaluate);
}

}  // namespace temper::cli
