#pragma once
#include <string>

#include "quantizers/quantizers.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// Refuses a group `quantize` that no run of this version can train with.
void check_quantize(const RunConfig& config);

// The table of a run's quantizers, and what `temper export` writes of them, from its configuration and the
// model's config.json: no weights are read. An Error where the configuration asks for none.
std::string describe_quantizers(const RunConfig& config);

std::string describe_rules(const quantizers::QuantizerPlan& plan);  // one line for each rule
// A sentence for each key that changes nothing for this model.
std::vector<std::string> quantize_keys_without_effect(const QuantizeConfig& config,
                                                      const quantizers::Quantizers& quantizers);
// Why `temper export` cannot write what is trained; "": it can.
std::string why_not_exported(const quantizers::QuantizerPlan& plan, const WeightTable& table);

}  // namespace temper::recipes
