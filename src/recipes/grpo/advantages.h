#pragma once
#include <functional>
#include <vector>

#include "collectives/group.h"
#include "recipes/grpo/grpo_keys.h"
#include "recipes/grpo/sampled_answer.h"

// How much better the answers of a rollout, or their tokens, were than expected. Samples are those of this
// rank; all ranks call the same function, and get what one rank with all samples would.
namespace temper::recipes {

// SampledAnswer::advantage, from the rewards of each group's answers.
void set_advantages_of_answers(const GrpoKeys& keys, collectives::Group& ranks,
                               std::vector<SampledAnswer>& samples);
// Passage::advantages, from rewards to go.
void set_advantages_of_tokens(const GrpoKeys& keys, collectives::Group& ranks,
                              std::vector<SampledAnswer>& samples);
// Passage::advantages and returns, from Passage::values: of an answer's sampled tokens one after another,
// through all of its passages; tokens of environments are skipped. The others are left out of all statistics.
// The explained variance of the values.
double set_advantages_by_values(const GrpoKeys& keys, collectives::Group& ranks,
                                std::vector<SampledAnswer>& samples,
                                const std::function<bool(const SampledAnswer&)>& is_learnt);

}  // namespace temper::recipes
