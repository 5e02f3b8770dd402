#include "recipes/plans/update_size.h"

#include "base/files.h"
#include "models/model.h"
#include "recipes/keys/adapter_config.h"
#include "training/passes/flops.h"

namespace temper::recipes {
namespace {

// f(configuration, sample) of the model or of each adapter.
template <class F>
void for_learners(const RunConfig& config, const Setting& setting, const F& f) {
  if (config.adapters.empty()) return f(config, setting.sample_of(0));
  for (size_t i = 0; i < config.adapters.size(); ++i)
    f(run_of_adapter(config, config.adapters[i]), setting.sample_of(i));
}

}  // namespace

UpdateSize size_of_update(const RunConfig& config, const Setting& setting) {
  const layers::DecoderConfig model = models::configure(
      setting.model, join_path(config.model.path, "config.json"), models::Purpose::kTraining);
  UpdateSize size;
  for_learners(config, setting, [&](const RunConfig& run, const Sample& sample) {
    const std::vector<data::PackedRow> rows = own_rows(run, sample, 1, kPlannedPasses);
    std::vector<training::DocumentSpan> documents;
    double tokens = 0;
    for (const data::PackedRow& row : rows)
      for (size_t i = 0; i < row.document_lengths.size(); ++i) {
        documents.push_back({.length = row.document_lengths[i]});
        if (i < row.answers.size()) documents.back().answers = row.answers[i];
        tokens += static_cast<double>(row.document_lengths[i]);
      }
    const auto all = static_cast<double>(rows_of_update(run, sample));
    const double times = all / static_cast<double>(rows.size());
    const double passes = config.adapters.empty() ? 3 : 2;  // a frozen weight has no gradient
    size.rows += all;
    size.tokens += times * tokens;
    size.flops += times * passes * training::forward_flops(model, documents);
  });
  return size;
}

PassCounts passes_of_update(const RunConfig& config, const Setting& setting, int row_ranks) {
  PassCounts sum{0, 0};
  for_learners(config, setting, [&](const RunConfig& run, const Sample& sample) {
    const PassCounts one = passes_of(run, sample, row_ranks, kPlannedPasses);
    sum.all += one.all;
    sum.rehearsed += one.rehearsed;
  });
  return sum;
}

}  // namespace temper::recipes
