#pragma once
#include <vector>

#include "recipes/plans/rehearsal.h"

// Rows that a plan rehearses with: full, and of documents such as the run's own.
namespace temper::recipes {

// Of the passes of an update that are rehearsed, those of one of `row_ranks` ranks with rows of their own:
// at least one. No other rank has more. `most_passes`: Setting::most_passes.
std::vector<data::PackedRow> own_rows(const RunConfig& config, const Sample& sample, int row_ranks,
                                      int64_t most_passes);
// Of an update, for one of `row_ranks` ranks: how many passes it computes, and how many of them are
// rehearsed.
struct PassCounts {
  int64_t all = 1, rehearsed = 1;
};
PassCounts passes_of(const RunConfig& config, const Sample& sample, int row_ranks, int64_t most_passes);
bool evaluates(const RunConfig& config);
// Of one pass of an evaluation.
std::vector<data::PackedRow> eval_rows(const RunConfig& config, const Sample& sample);

}  // namespace temper::recipes
