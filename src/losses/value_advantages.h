#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "losses/returns.h"

namespace temper::losses {

// An answer with what a critic expected at each of its sampled tokens. Tokens of an environment are not among
// them: what is expected behind a sampled token is the value of the next sampled one.
struct ValuedAnswer {
  double reward = 0;                       // NaN: left out; it counts in nothing, and all of it is 0
  std::span<const double> old, reference;  // [tokens]: log-probabilities, as token_rewards reads them
  std::span<const double> values;          // [tokens]: expected before each token was sampled
  double after = 0;                        // as gae() reads it
};

struct ValueAdvantagesOptions {
  KlInRewards kl = {};
  Gae gae = {};
  double eps = 1e-8;
};

struct ValueAdvantages {
  // Of all tokens, answer after answer: gae() of token_rewards, normalized over the tokens of the batch, and
  // the returns that values learn, which are not normalized (Schulman et al., "Proximal Policy Optimization
  // Algorithms", 2017; Ouyang et al., "Training language models to follow instructions with human feedback",
  // 2022; Huang et al., "The N+ Implementation Details of RLHF with PPO", 2024, section 4).
  std::vector<double> advantages, returns;
  // 1 - variance(returns - values) / variance(returns) over the tokens: 1 of perfect values, 0 of a constant;
  // 0, too, where all returns are equal.
  double explained_variance = 0;
};

ValueAdvantages value_advantages(const ValueAdvantagesOptions& options, std::span<const ValuedAnswer> batch);

}  // namespace temper::losses
