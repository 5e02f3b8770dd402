#pragma once
#include <cstdint>

namespace temper::losses {

// An answer as the model and, where a loss asks for one, the reference see it.
struct Answer {
  double logp = 0;            // Σ log p over its tokens, given the prompt
  double reference_logp = 0;  // the same of the reference
  int64_t tokens = 1;
};

struct PairLoss {
  double loss = 0;
  double chosen_gradient = 0, rejected_gradient = 0;  // by each answer's logp
  double chosen_reward = 0, rejected_reward = 0;      // what the model implies that the answers are worth
};

}  // namespace temper::losses
