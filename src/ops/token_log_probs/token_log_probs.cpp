#include "ops/token_log_probs/token_log_probs.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

using Entropies = TokenLogProbs::Entropies;

// With x the logits less the largest of their row and Z the sum of their exponentials, H = log Z - Σ exp(x) x
// / Z.
TokenLogProbs::Vars compose(Tape& tape, const Var& logits, const TokenLogProbs& op) {
  Var scores = p::cast(tape, logits, DType::kF32);
  if (op.temperature != 1) scores = p::scale(tape, scores, static_cast<float>(1 / op.temperature));
  const Var shifted = p::sub(tape, scores, p::max_last(tape, scores)), powers = p::exp(tape, shifted),
            sums = p::sum_last(tape, powers), log_sums = p::log(tape, sums);
  const Shape shape{op.ids.numel()};
  TokenLogProbs::Vars found;
  found.log_probs = p::reshape(tape, p::sub(tape, p::take_last(tape, shifted, op.ids), log_sums), shape);
  if (op.entropies_wanted == Entropies::kNone) return found;
  Tape quiet(false);
  Tape& other = op.entropies_wanted == Entropies::kTrained ? tape : quiet;
  const Var weighted = p::sum_last(other, p::mul(other, powers, shifted));
  found.entropies = p::reshape(other, p::sub(other, log_sums, p::div(other, weighted, sums)), shape);
  return found;
}

void check(const TokenLogProbs& op) {
  constexpr auto name = TokenLogProbs::kName;
  check_ndim(name, "logits", op.logits, 2);
  check_float(name, "logits", op.logits);
  check_contiguous(name, "logits", op.logits);
  check_shape(name, "ids", op.ids, {op.logits.dim(0)});
  check_dtype(name, "ids", op.ids, DType::kI32);
  if (!(op.temperature > 0)) fail("[token_log_probs] temperature is {}, needs more than 0", op.temperature);
}

Tensor or_nothing(const Tensor& gradient) { return gradient.defined() ? gradient.contiguous() : gradient; }

}  // namespace

TokenLogProbs::Vars token_log_probs(Tape& tape, Bound<TokenLogProbs> bound, const Var& logits,
                                    const Tensor& ids, double temperature, Entropies entropies) {
  const TokenLogProbs op{logits.value, ids, temperature, entropies};
  check(op);
  const trace::Span span(TokenLogProbs::kName, [&] {
    const auto bytes = static_cast<double>(op.logits.bytes());
    return trace::OpWork{{0, bytes}, {0, 2 * bytes}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr) return kernel.compose(tape, logits, op);
  const TokenLogProbs::Output out = kernel.forward(op);
  const auto backward = [op, out, slot = logits.slot, &kernel](const Tensor& log_probs,
                                                               const Tensor& of_entropies) {
    slot->add(kernel.backward(op, out, or_nothing(log_probs), or_nothing(of_entropies)));
  };
  if (entropies != Entropies::kTrained)
    return {tape.record(out.log_probs, {&logits}, [backward](const Tensor& dy) { backward(dy, {}); }),
            out.entropies.defined() ? tape.constant(out.entropies) : Var{}};
  auto vars = tape.record({out.log_probs, out.entropies}, {&logits},
                          [backward](const std::vector<Tensor>& grads) { backward(grads[0], grads[1]); });
  return {vars[0], vars[1]};
}

namespace {

TokenLogProbs::Output outline_forward(const TokenLogProbs& op) {
  const auto each = [&] { return empty_like(op.logits, {op.logits.dim(0)}, DType::kF32); };
  return {each(), op.entropies_wanted == Entropies::kNone ? Tensor() : each(), each()};
}

Tensor outline_backward(const TokenLogProbs& op, const TokenLogProbs::Output&, const Tensor&, const Tensor&) {
  return empty_like(op.logits, op.logits.shape());
}

}  // namespace

Probe token_log_probs_probe;

void register_token_log_probs() {
  register_op<TokenLogProbs>(compose, token_log_probs_probe, {outline_forward, outline_backward},
                             {.gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
