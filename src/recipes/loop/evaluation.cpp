#include "recipes/loop/evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "models/adapter.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"
#include "recipes/parts/run_files.h"
#include "recipes/setup/data_sets.h"
#include "recipes/setup/run_setup.h"

namespace temper::recipes {
namespace {

// The same rows for all.
struct Task {
  RunConfig config;
  std::vector<EvaluatedAdapter> adapters;
};

std::vector<Evaluation> evaluate(const Task& task) {
  RunSetup setup(task.config);
  for (const EvaluatedAdapter& each : task.adapters)  // before weights are read
    if (!each.folder.empty())
      models::check_adapter(layers::decoder_weight_table(setup.architecture), each.folder);
  const DataSets sets = DataSets::load(setup.config, setup.text);
  const data::Mixture& rows_of = sets.eval ? *sets.eval : sets.train;
  const std::vector<data::PackedRow> rows = read_all(rows_of, setup.config);
  if (rows.empty())
    fail("[data] no row of {} is kept, so there is nothing to evaluate; see temper data inspect",
         rows_of.describe());
  setup.load_weights({}, false, Rounding::kAsTheFolderSays);
  std::vector<Evaluation> all;
  for (const EvaluatedAdapter& each : task.adapters) {
    const auto adapter = each.folder.empty() ? nullptr : models::load_adapter(*setup.model, each.folder);
    const training::EvalResult result =
        training::evaluate(setup.model->decoder, adapter.get(), rows,
                           setup.config.train.compute.micro_batch_tokens, setup.ranks);
    all.push_back({each.name, result.target_tokens, result.loss});
  }
  return all;
}

// As training left it in the run's folder.
EvaluatedAdapter trained_adapter(const RunConfig& run) {
  const EvaluatedAdapter adapter{run.adapters.front().name, RunFiles{run.output}.adapter()};
  if (!is_directory(adapter.folder))
    fail("[adapters.{}] {} is not there; train it first (temper train), or name a folder with --adapter",
         adapter.name, adapter.folder);
  return adapter;
}

std::vector<Task> tasks_of(const RunConfig& config, const std::vector<EvaluatedAdapter>& adapters) {
  if (!adapters.empty()) return {{config, adapters}};
  if (config.adapters.empty()) return {{config, {{config.model.path, ""}}}};
  std::vector<Task> tasks;
  for (const AdapterConfig& each : config.adapters) {
    const RunConfig run = run_of_adapter(config, each);
    tasks.push_back({run, {trained_adapter(run)}});
  }
  return tasks;
}

bool holds_rows_out(const RunConfig& config) {
  return !config.data.eval.empty() || config.data.eval_fraction > 0;
}

}  // namespace

void check_evaluations(const RunConfig& config) {
  const EvalConfig& eval = config.eval;
  const bool held_out = config.adapters.empty()
                            ? holds_rows_out(config)
                            : std::ranges::any_of(config.adapters, [&](const AdapterConfig& adapter) {
                                return holds_rows_out(run_of_adapter(config, adapter));
                              });
  if (eval.every_steps > 0 && !held_out)
    fail("[eval.every_steps] is {}, but {} gives rows to evaluate on; name some, or leave it out",
         eval.every_steps,
         config.adapters.empty() ? "neither data.eval nor data.eval_fraction"
                                 : "none of data.eval, data.eval_fraction and the adapters' eval");
}

std::string eval_key_without_effect(const RunConfig& config) {
  const EvalConfig& eval = config.eval;
  if (eval.max_new_tokens == EvalConfig().max_new_tokens || eval.exact_match > 0) return "";
  return fmt::format(
      "[eval.max_new_tokens] is {}, and has no effect: eval.exact_match is 0, and no questions are "
      "answered{}",
      eval.max_new_tokens,
      recipe_of(config).rollouts != nullptr ? " (evaluations by rewards read grpo.sampling.max_new_tokens)"
                                            : "");
}

double Evaluation::perplexity() const { return std::exp(loss); }

std::vector<Evaluation> evaluate_models(RunConfig config, const std::vector<EvaluatedAdapter>& adapters,
                                        const std::string& other) {
  if (!config.adapters.empty() && config.quantize.to_options().any())
    log_warning(
        "[quantize] has no part in this: the adapters are evaluated on their base as it was before quantize "
        "rounded it; temper export writes the rounded one, for model.path");
  config.quantize = {};
  const std::vector<Task> tasks = tasks_of(config, adapters);
  for (const Task& task : tasks)
    if (task.config.data.train.empty() && task.config.data.eval.empty())
      fail("[data.eval] is missing; name the files to evaluate on: --data.eval FILE");
  std::vector<Evaluation> all;
  for (Task task : tasks) {
    std::vector<SourceConfig>& train = task.config.data.train;
    if (train.empty()) train = task.config.data.eval;
    for (Evaluation& each : evaluate(task)) all.push_back(std::move(each));
    if (other.empty()) continue;
    const std::string rows = tasks.size() > 1 ? fmt::format(" (rows of {})", all.back().name) : "";
    task.config.model.path = other;
    task.adapters = {{other + rows, ""}};
    all.push_back(evaluate(task).front());
  }
  return all;
}

}  // namespace temper::recipes
