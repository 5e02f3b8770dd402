#pragma once
#include <functional>
#include <vector>

#include "collectives/group.h"
#include "recipes/grpo/answers/sampled_answer.h"
#include "recipes/grpo/grpo_keys.h"

// How much better the answers of a rollout, or their tokens, were than expected. Samples are those of this
// rank; all ranks call the same function, and get what one rank with all samples would.
namespace temper::recipes {

// Whether updates learn from an answer.
using IsLearnt = std::function<bool(const SampledAnswer&)>;

// As the loss has them: one of the three below. The explained variance of the critic's values; 0 without one.
double set_advantages(const GrpoKeys& keys, collectives::Group& ranks, std::vector<SampledAnswer>& samples,
                      const IsLearnt& is_trained);
// SampledAnswer::advantage, from the rewards of each group's answers: of all that have one or, where the KL
// lowers rewards, of those that updates learn from, whose KL is known.
void set_advantages_of_answers(const GrpoKeys& keys, collectives::Group& ranks,
                               std::vector<SampledAnswer>& samples, const IsLearnt& is_trained);
// TokenColumns::advantages, from rewards to go. Answers that are not trained on are left out of all
// statistics.
void set_advantages_of_tokens(const GrpoKeys& keys, collectives::Group& ranks,
                              std::vector<SampledAnswer>& samples, const IsLearnt& is_trained);
// TokenColumns::advantages and returns, from its values: of an answer's sampled tokens one after another,
// through all of its passages; tokens of environments are skipped. Answers that no update learns
// from are in no statistics. The explained variance of the values.
double set_advantages_by_values(const GrpoKeys& keys, collectives::Group& ranks,
                                std::vector<SampledAnswer>& samples, const IsLearnt& is_trained);

}  // namespace temper::recipes
