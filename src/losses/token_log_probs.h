#pragma once
#include "autograd/tape.h"

namespace temper::losses {

// log softmax(logits / temperature) at ids, over the whole vocabulary, whatever part of it was sampled from:
// logits [tokens, vocab], ids [tokens] int32, result [tokens] float32. All is float32. Rollouts and training
// both compute log-probabilities by it, so that equal logits give equal bits.
Var token_log_probs(Tape& tape, const Var& logits, const Tensor& ids, double temperature = 1);

// The same with the entropy -Σ p log p of each token's distribution, in nats, which gradients flow through
// only where that is asked for.
struct TokenDistributions {
  Var log_probs, entropies;  // [tokens] float32
};
TokenDistributions token_distributions(Tape& tape, const Var& logits, const Tensor& ids, double temperature,
                                       bool learns_entropy);

}  // namespace temper::losses
