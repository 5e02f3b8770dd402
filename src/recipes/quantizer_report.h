#pragma once
#include <string>

#include "layers/quantizer_plan.h"
#include "recipes/run_config.h"

namespace temper::recipes {

// Refuses a group `quantize` that no run of this version can train with, on so many ranks.
void check_quantize(const RunConfig& config);

// The quantizers of a run, from its configuration and the model's config.json: no weights are read. An Error
// where the configuration asks for none.
layers::QuantizerPlan quantizers_of_run(const RunConfig& config);

// A table of the quantizers, and how many each rule has.
std::string describe(const layers::QuantizerPlan& plan);
std::string describe_rules(const layers::QuantizerPlan& plan);  // the end of it, one line for each rule

}  // namespace temper::recipes
