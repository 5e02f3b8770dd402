#pragma once
#include <string>
#include <vector>

#include "data/rows/pack.h"
#include "layers/decoder.h"
#include "recipes/keys/run_config.h"
#include "recipes/loop/options.h"

namespace temper::recipes {

// The schedule of an update of these rows, by learner, drawn with a line for each stage
// (parallel::draw): with as many micro-batches as the replica of the model has that has most, and passes that
// take as long as their layers cost (parallel::pipeline_costs). `device`: of the ranks. An Error of kind
// kDefect where stages would wait for each other forever.
std::string describe_schedule(const layers::DecoderConfig& model, const RunConfig& config,
                              const PlannedDivision& planned, Device device,
                              const std::vector<std::vector<data::PackedRow>>& rows);

}  // namespace temper::recipes
