#pragma once
#include "autograd/tape.h"
#include "losses/top_tokens.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::losses {

// How far a student's distribution q of the next token is from a teacher's p, both softmax(logits / T).
enum class Divergence {
  kForward,        // KL(p ‖ q) = Σ p log(p / q)
  kReverse,        // KL(q ‖ p) = Σ q log(q / p)
  kJensenShannon,  // a KL(p ‖ m) + (1 - a) KL(q ‖ m) with m = a p + (1 - a) q, and a the teacher's share
};

// Of each token (1 - c) T² divergence + c (-log q₁(target)), where q₁ is q at T = 1. T² keeps gradients of
// the same size whatever T is (Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network",
// 2015, section 2.1). The Jensen-Shannon divergence is as in Agarwal et al., "On-Policy Distillation of
// Language Models", 2024, section 3.
struct Distillation {
  Divergence divergence = Divergence::kForward;
  double temperature = 1;      // T, above 0
  double teacher_share = 0.5;  // a, in (0, 1)
  double cross_entropy = 0;    // c, in [0, 1]
};

// All tensors are float32. Divergences are in nats and without T².
struct DistilledTokens {
  Var loss;                          // [1]: scale times the sum over the tokens
  Tensor divergence, cross_entropy;  // [tokens]
  Tensor teacher_entropy;            // [tokens]: -Σ p log p
  Tensor agreement;                  // [tokens]: 1 where some token is the most probable of both, else 0
};

// Of logits [tokens, vocab] of both models at the same tokens, and ids [tokens] int32, the targets, on the
// CPU. Where ranks divide the vocabulary, logits are of this rank's part of it, every rank gets the same
// loss, and of the gradient each gets that of its own logits. An Error for a temperature that is not above 0.
DistilledTokens distill(Tape& tape, const Distillation& options, const Var& student, const Tensor& teacher,
                        const Tensor& ids, double scale, const ops::VocabularyRanks& ranks = {});

// The same where K tokens of the teacher are known. The divergence is that of K + 1 outcomes: these tokens,
// and that it is none of them, whose probability is the sum over all others for p as for q. It is at most the
// one of whole distributions, and that one where K is the vocabulary. The cross entropy is of all tokens.
DistilledTokens distill(Tape& tape, const Distillation& options, const Var& student, const TopTokens& teacher,
                        const Tensor& ids, double scale, const ops::VocabularyRanks& ranks = {});

}  // namespace temper::losses
