#include "losses/token_log_probs.h"

#include "base/error.h"
#include "primitives/primitives.h"

namespace temper::losses {

namespace p = primitives;

Var token_log_probs(Tape& tape, const Var& logits, const Tensor& ids, double temperature) {
  if (!(temperature > 0)) fail("[token_log_probs] temperature is {}, needs more than 0", temperature);
  const int64_t tokens = logits.shape()[0];
  Var scores = p::cast(tape, logits, DType::kF32);
  if (temperature != 1) scores = p::scale(tape, scores, static_cast<float>(1 / temperature));
  const Var shifted = p::sub(tape, scores, p::max_last(tape, scores));
  const Var log_sum = p::log(tape, p::sum_last(tape, p::exp(tape, shifted)));
  const Var chosen = p::take_last(tape, shifted, ids);
  return p::reshape(tape, p::sub(tape, chosen, log_sum), {tokens});
}

}  // namespace temper::losses
