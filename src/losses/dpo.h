#pragma once
#include "losses/answer.h"

namespace temper::losses {

// With the ratio of an answer, r = log π(answer) - log π_ref(answer), and Δ = r(chosen) - r(rejected):
//   sigmoid  -(1 - ε) log σ(β Δ - γ) - ε log σ(γ - β Δ)
//   ipo      (Δ - 1 / (2 β))²
// sigmoid with ε = γ = 0 is direct preference optimization (Rafailov et al., "Direct Preference Optimization:
// Your Language Model is Secretly a Reward Model", 2023, equation 7). ε is the probability that a label is
// wrong (Mitchell, "A note on DPO with noisy preferences & relationship to IPO", 2023, equation 3). ipo: Azar
// et al., "A General Theoretical Paradigm to Understand Learning from Human Preferences", 2023, equation 17.
// `length_normalized` divides each log-probability by its answer's number of tokens; with `reference_free`
// log π_ref is 0; both, and γ above 0, are Meng et al., "SimPO: Simple Preference Optimization with a
// Reference-Free Reward", 2024, equation 6. An answer's reward is β r.
struct Dpo {
  enum class Form { kSigmoid, kIpo };
  Form form = Form::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0;  // ε, below 0.5
  double margin = 0;           // γ
  bool length_normalized = false;
  bool reference_free = false;
};

PairLoss dpo(const Dpo& options, const Answer& chosen, const Answer& rejected);

}  // namespace temper::losses
