#pragma once
#include "losses/answer.h"

namespace temper::losses {

// Of one answer that was judged good or bad, with r = log π(answer) - log π_ref(answer) and z0 what answers
// to other prompts have gained on average:
//   good  λ_D (1 - σ(β (r - z0)))        bad  λ_U (1 - σ(β (z0 - r)))
// No gradient flows through z0 (Ethayarajh et al., "KTO: Model Alignment as Prospect Theoretic Optimization",
// 2024, equations 7 and 8). The reward is β r.
struct Kto {
  double beta = 0.1;
  double desirable_weight = 1;    // λ_D
  double undesirable_weight = 1;  // λ_U
};

struct AnswerLoss {
  double loss = 0, gradient = 0, reward = 0;
};

AnswerLoss kto(const Kto& options, const Answer& answer, bool good, double z0);

}  // namespace temper::losses
