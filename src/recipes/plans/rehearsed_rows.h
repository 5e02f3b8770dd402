#pragma once
#include <vector>

#include "recipes/plans/rehearsal.h"

// Rows that a plan rehearses with: full, and of documents such as the run's own.
namespace temper::recipes {

// Of the passes of an update that are rehearsed.
std::vector<data::PackedRow> all_rows(const RunConfig& config, const Sample& sample);
bool evaluates(const RunConfig& config);
// Of one pass of an evaluation.
std::vector<data::PackedRow> eval_rows(const RunConfig& config, const Sample& sample);

}  // namespace temper::recipes
