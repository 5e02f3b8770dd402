#include "recipes/evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "recipes/adapter_config.h"
#include "recipes/data_sets.h"
#include "recipes/recipe.h"
#include "recipes/run_setup.h"

namespace temper::recipes {
namespace {

Evaluation evaluate_folder(const RunConfig& config) {
  RunSetup setup(config);
  const DataSets sets = DataSets::load(setup.config, setup.text);
  const data::Mixture& rows_of = sets.eval ? *sets.eval : sets.train;
  const std::vector<data::PackedRow> rows = read_all(rows_of, setup.config);
  if (rows.empty())
    fail("[data] no row of {} is kept, so there is nothing to evaluate; see temper data inspect",
         rows_of.describe());
  setup.load_weights({}, false);
  const training::EvalResult result = training::evaluate(setup.model->decoder, nullptr, rows,
                                                         setup.config.train.micro_batch_tokens, setup.ranks);
  return {config.model.path, result.target_tokens, result.loss};
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
      recipe_of(config).rollouts != nullptr ? " (evaluations by rewards read grpo.max_new_tokens)" : "");
}

double Evaluation::perplexity() const { return std::exp(loss); }

std::vector<Evaluation> evaluate_models(RunConfig config, const std::vector<std::string>& folders) {
  if (!config.adapters.empty())
    fail("[adapters] are not evaluated by themselves: merge one into a model first (temper merge)");
  if (config.data.train.empty()) config.data.train = config.data.eval;
  config.quantize = {};
  std::vector<Evaluation> all;
  for (const std::string& folder : folders) {
    config.model.path = folder;
    all.push_back(evaluate_folder(config));
  }
  return all;
}

}  // namespace temper::recipes
