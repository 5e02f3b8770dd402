#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "recipes/parts/rollout_memory.h"
#include "recipes/setup/data_sets.h"

namespace temper::recipes {

// Whether generation stops where the answers of the rows end, by the first rows of each source; with
// `rollouts`, whether rollouts stop where the chat template ends an answer to the rows' conversations. Where
// they do not, a warning names both. The result is the special token with which these answers end instead:
// the run's own questions and what it saves stop at it, too. None where all is well, and where no special
// token ends them.
std::optional<int32_t> training_stop_token(const data::Mixture& rows, const rollout::TextFiles& text,
                                           const RolloutSettings* rollouts);

}  // namespace temper::recipes
