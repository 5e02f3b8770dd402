#pragma once
#include <string>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

// Checks what concerns all adapters of a run: names that are plain and differ, and that there are some where
// the model is kept as only a frozen one can be.
void check_adapters(const RunConfig& config);

// What it trains of a model. Errors start with "[adapters.NAME.".
struct AdapterChoice {
  LoraConfig lora;
  LoraPlan plan;
};
AdapterChoice choose_adapter(const AdapterConfig& adapter, const WeightTable& base);

// The folder that an adapter starts from. A run reads it once, and later its own copy of it. Empty for a new
// adapter.
const std::string& source_of(const AdapterConfig& adapter);

// The run of one adapter as if it were alone: its own data and schedule are the run's, its folder is
// OUTPUT/adapters/NAME.
RunConfig run_of_adapter(const RunConfig& config, const AdapterConfig& adapter);

}  // namespace temper::recipes
