#pragma once
#include "losses/answer.h"

namespace temper::losses {

// With p(answer) = exp(logp / tokens) and odds = p / (1 - p):
//   -log p(chosen) - λ log σ(log odds(chosen) - log odds(rejected))
// learns the chosen answer and prefers it at once, without a reference (Hong et al., "ORPO: Monolithic
// Preference Optimization without Reference Model", 2024, equations 4 to 7). An answer's reward is λ log p.
struct Orpo {
  double lambda = 0.1;
};

PairLoss orpo(const Orpo& options, const Answer& chosen, const Answer& rejected);

}  // namespace temper::losses
