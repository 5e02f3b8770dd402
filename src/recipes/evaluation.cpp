#include "recipes/evaluation.h"

#include <cmath>

#include "base/error.h"
#include "recipes/data_sets.h"
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

}  // namespace

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
