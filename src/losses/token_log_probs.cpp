#include "losses/token_log_probs.h"

#include "base/error.h"
#include "primitives/primitives.h"

namespace temper::losses {

namespace p = primitives;

namespace {

// Logits less the largest of their row, and what the log of their sum of exponentials is.
struct Scores {
  Var shifted, exponentials, sums;  // [tokens, vocab] twice, [tokens, 1]
};

Scores scores_of(Tape& tape, const Var& logits, double temperature) {
  if (!(temperature > 0)) fail("[token_log_probs] temperature is {}, needs more than 0", temperature);
  Var scores = p::cast(tape, logits, DType::kF32);
  if (temperature != 1) scores = p::scale(tape, scores, static_cast<float>(1 / temperature));
  const Var shifted = p::sub(tape, scores, p::max_last(tape, scores)), powers = p::exp(tape, shifted);
  return {shifted, powers, p::sum_last(tape, powers)};
}

Var log_probs_of(Tape& tape, const Scores& scores, const Var& log_sums, const Tensor& ids) {
  return p::reshape(tape, p::sub(tape, p::take_last(tape, scores.shifted, ids), log_sums), {ids.numel()});
}

}  // namespace

Var token_log_probs(Tape& tape, const Var& logits, const Tensor& ids, double temperature) {
  const Scores scores = scores_of(tape, logits, temperature);
  return log_probs_of(tape, scores, p::log(tape, scores.sums), ids);
}

// With x the shifted logits and Z the sum of their exponentials, H = log Z - Σ exp(x) x / Z.
TokenDistributions token_distributions(Tape& tape, const Var& logits, const Tensor& ids, double temperature,
                                       bool learns_entropy) {
  const Scores scores = scores_of(tape, logits, temperature);
  const Var log_sums = p::log(tape, scores.sums);
  Tape quiet(false);
  Tape& other = learns_entropy ? tape : quiet;
  const Var weighted = p::sum_last(other, p::mul(other, scores.exponentials, scores.shifted)),
            entropies = p::sub(other, log_sums, p::div(other, weighted, scores.sums));
  return {log_probs_of(tape, scores, log_sums, ids), p::reshape(other, entropies, {ids.numel()})};
}

}  // namespace temper::losses
