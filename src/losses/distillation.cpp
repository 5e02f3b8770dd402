#include "losses/distillation.h"

#include <limits>

#include "base/error.h"
#include "primitives/between_ranks.h"
#include "primitives/primitives.h"

namespace temper::losses {
namespace {

namespace p = primitives;

// Functions of rows of which each rank has some columns.
class Rows {
 public:
  explicit Rows(const ops::VocabularyRanks& ranks) : ranks_(ranks) {}

  Var sum(Tape& tape, const Var& x) const {
    const Var own = p::sum_last(tape, x);
    return ranks_.group == nullptr ? own : p::sum_of_ranks(tape, own, *ranks_.group);
  }
  Var largest(Tape& tape, const Var& x) const {
    const Var own = p::max_last(tape, x);
    if (ranks_.group == nullptr) return own;
    return p::max_last(tape, p::columns_of_ranks(tape, tape.constant(own.value), *ranks_.group));
  }
  // A number of each whole row, which every rank reads for its own columns.
  Var read(Tape& tape, const Var& x) const {
    return ranks_.group == nullptr ? x : p::read_by_ranks(tape, x, *ranks_.group);
  }
  // x at ids of the whole row, [tokens, 1].
  Var at(Tape& tape, const Var& x, const Tensor& ids) const {
    if (ranks_.group == nullptr) return p::take_last(tape, x, ids.on(x.value.device(), MemoryTag::kData));
    const Tensor here = Tensor::zeros({ids.numel(), 1}, DType::kF32),
                 safe = Tensor::zeros(ids.shape(), DType::kI32);
    for (int64_t t = 0; t < ids.numel(); ++t) {
      const int64_t column = ids.data<int32_t>()[t] - ranks_.first;
      if (column < 0 || column >= x.shape()[1]) continue;
      here.data<float>()[t] = 1;
      safe.data<int32_t>()[t] = static_cast<int32_t>(column);
    }
    const Device device = x.value.device();
    const Var own = p::mul(tape, p::take_last(tape, x, safe.on(device, MemoryTag::kData)),
                           tape.constant(here.on(device, MemoryTag::kData)));
    return p::sum_of_ranks(tape, own, *ranks_.group);
  }

 private:
  const ops::VocabularyRanks& ranks_;
};

struct Distribution {
  Var shifted, log_probs, probs;  // [tokens, vocab]; shifted: 0 at the most probable token
};

Distribution distribution_of(Tape& tape, const Rows& rows, const Var& logits, double temperature) {
  Var scores = p::cast(tape, logits, DType::kF32);
  if (temperature != 1) scores = p::scale(tape, scores, static_cast<float>(1 / temperature));
  const Var shifted = p::sub(tape, scores, rows.largest(tape, scores));
  const Var log_sum = p::log(tape, rows.sum(tape, p::exp(tape, shifted)));
  const Var log_probs = p::sub(tape, shifted, rows.read(tape, log_sum));
  return {shifted, log_probs, p::exp(tape, log_probs)};
}

// Σ a log(a / b), each term of one difference: equal distributions are 0 apart, without rounding.
Var relative_entropy(Tape& tape, const Rows& rows, const Distribution& a, const Var& log_b) {
  return rows.sum(tape, p::mul(tape, a.probs, p::sub(tape, a.log_probs, log_b)));
}

Var divergence_of(Tape& tape, const Rows& rows, const Distillation& options, const Distribution& teacher,
                  const Distribution& student) {
  if (options.divergence == Divergence::kForward)
    return relative_entropy(tape, rows, teacher, student.log_probs);
  if (options.divergence == Divergence::kReverse)
    return relative_entropy(tape, rows, student, teacher.log_probs);
  const auto own = static_cast<float>(options.teacher_share),
             other = static_cast<float>(1 - options.teacher_share);
  const Var mixed = p::add(tape, p::scale(tape, teacher.probs, own), p::scale(tape, student.probs, other));
  // Where both are 0 the terms are, too.
  const Var log_mixed = p::log(tape, p::clamp(tape, mixed, std::numeric_limits<float>::min(), 2));
  return p::add(tape, p::scale(tape, relative_entropy(tape, rows, teacher, log_mixed), own),
                p::scale(tape, relative_entropy(tape, rows, student, log_mixed), other));
}

// A token that is the most probable of both has a sum of 0, the largest there can be.
Tensor agreement_of(const Rows& rows, const Distribution& teacher, const Distribution& student) {
  Tape quiet(false);
  const Var both =
      p::add(quiet, quiet.constant(teacher.shifted.value), quiet.constant(student.shifted.value));
  const Tensor largest = rows.largest(quiet, both).value.on({});
  const Tensor agreement = Tensor::zeros({largest.numel()}, DType::kF32);
  for (int64_t t = 0; t < largest.numel(); ++t)
    agreement.data<float>()[t] = largest.data<float>()[t] == 0 ? 1.f : 0.f;
  return agreement;
}

}  // namespace

DistilledTokens distill(Tape& tape, const Distillation& options, const Var& student, const Tensor& teacher,
                        const Tensor& ids, double scale, const ops::VocabularyRanks& ranks) {
  if (!(options.temperature > 0)) fail("[distill] temperature is {}, needs more than 0", options.temperature);
  invariant(student.shape() == teacher.shape() && student.shape()[0] == ids.numel(),
            "student and teacher have logits of the same tokens");
  const int64_t tokens = ids.numel();
  const double temperature = options.temperature, weight = options.cross_entropy;
  const Rows rows(ranks);
  Tape quiet(false);
  const Distribution given = distribution_of(quiet, rows, quiet.constant(teacher), temperature);
  const Distribution own = distribution_of(tape, rows, student, temperature);
  const Var divergence = divergence_of(tape, rows, options, given, own);
  // Statistics need no gradients where the cross entropy is not learnt.
  Tape& learning = weight > 0 ? tape : quiet;
  const Distribution plain = temperature == 1 ? own : distribution_of(learning, rows, student, 1);
  const Var log_probs = rows.at(learning, plain.log_probs, ids);
  Var loss = p::scale(tape, divergence, static_cast<float>((1 - weight) * temperature * temperature * scale));
  if (weight > 0) loss = p::add(tape, loss, p::scale(tape, log_probs, static_cast<float>(-weight * scale)));
  const Var entropies = rows.sum(quiet, p::mul(quiet, given.probs, given.log_probs));
  return {p::reshape(tape, p::sum_last(tape, p::reshape(tape, loss, {1, tokens})), {1}),
          divergence.value.reshape({tokens}), p::scale(quiet, log_probs, -1).value.reshape({tokens}),
          p::scale(quiet, entropies, -1).value.reshape({tokens}), agreement_of(rows, given, own)};
}

}  // namespace temper::losses
