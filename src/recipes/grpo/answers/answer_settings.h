#pragma once
#include "base/json/json.h"
#include "recipes/grpo/grpo_keys.h"

namespace temper::recipes {

// The keys of `grpo` that an answer may depend on: they identify the answers in rollouts.jsonl that a resumed
// run takes over. Names and order are those of the versions in which all keys were in one group, so that
// their runs resume; a key that they did not have is there only where its value is not the default. Keys that
// may change while a run is stopped and change no answer are there without their values.
Json settings_of_answers(GrpoKeys keys);

}  // namespace temper::recipes
