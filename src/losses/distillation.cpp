#include "losses/distillation.h"

#include <limits>

#include "base/error.h"
#include "losses/vocabulary_rows.h"
#include "primitives/primitives.h"

namespace temper::losses {
namespace {

namespace p = primitives;

struct Distribution {
  Var log_probs, probs;  // [tokens, outcomes]
};

Distribution distribution_of(Tape& tape, const VocabularyRows& rows, const Var& scores) {
  const Var log_sum = p::log(tape, rows.sum(tape, p::exp(tape, scores)));
  const Var log_probs = p::sub(tape, scores, rows.read(tape, log_sum));
  return {log_probs, p::exp(tape, log_probs)};
}

// Σ a log(a / b), each term of one difference: equal distributions are 0 apart, without rounding.
Var relative_entropy(Tape& tape, const VocabularyRows& rows, const Distribution& a, const Var& log_b) {
  return rows.sum(tape, p::mul(tape, a.probs, p::sub(tape, a.log_probs, log_b)));
}

Var divergence_of(Tape& tape, const VocabularyRows& rows, const Distillation& options,
                  const Distribution& teacher, const Distribution& student) {
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

// Of scores that are 0 at the most probable token: one that is so for both has a sum of 0, the largest there
// can be.
Tensor agreement_of(const VocabularyRows& rows, const Tensor& teacher, const Tensor& student) {
  Tape quiet(false);
  const Var both = p::add(quiet, quiet.constant(teacher), quiet.constant(student));
  const Tensor largest = rows.largest(quiet, both).value.on({});
  const Tensor agreement = Tensor::zeros({largest.numel()}, DType::kF32);
  for (int64_t t = 0; t < largest.numel(); ++t)
    agreement.data<float>()[t] = largest.data<float>()[t] == 0 ? 1.f : 0.f;
  return agreement;
}

// The student's logits of the whole vocabulary, and its scores of them at the temperature.
struct Student {
  const VocabularyRows& rows;
  Var logits, shifted;
};

// What the divergence is of. `rows` hold the outcomes of both; the scores of tokens are 0 at the most
// probable one.
struct Compared {
  const VocabularyRows& rows;
  Var teacher, student;                   // [tokens, outcomes], scores of the outcomes
  Tensor teacher_tokens, student_tokens;  // [tokens, some of the vocabulary], scores of the same tokens
};

DistilledTokens compare(Tape& tape, const Distillation& options, const Student& student,
                        const Compared& compared, const Tensor& ids, double scale) {
  const int64_t tokens = ids.numel();
  const double temperature = options.temperature, weight = options.cross_entropy;
  Tape quiet(false);
  const Distribution given = distribution_of(quiet, compared.rows, compared.teacher),
                     own = distribution_of(tape, compared.rows, compared.student);
  const Var divergence = divergence_of(tape, compared.rows, options, given, own);
  // Statistics need no gradients where the cross entropy is not part of the loss.
  Tape& learning = weight > 0 ? tape : quiet;
  const Var plain = temperature == 1 ? student.shifted : student.rows.shifted(learning, student.logits, 1);
  const Var log_probs = p::sub(learning, student.rows.at(learning, plain, ids),
                               p::log(learning, student.rows.sum(learning, p::exp(learning, plain))));
  Var loss = p::scale(tape, divergence, static_cast<float>((1 - weight) * temperature * temperature * scale));
  if (weight > 0) loss = p::add(tape, loss, p::scale(tape, log_probs, static_cast<float>(-weight * scale)));
  const Var entropies = compared.rows.sum(quiet, p::mul(quiet, given.probs, given.log_probs));
  return {p::reshape(tape, p::sum_last(tape, p::reshape(tape, loss, {1, tokens})), {1}),
          divergence.value.reshape({tokens}), p::scale(quiet, log_probs, -1).value.reshape({tokens}),
          p::scale(quiet, entropies, -1).value.reshape({tokens}),
          agreement_of(compared.rows, compared.teacher_tokens, compared.student_tokens)};
}

void check(const Distillation& options, const Var& student, int64_t taught, const Tensor& ids) {
  if (!(options.temperature > 0)) fail("[distill] temperature is {}, needs more than 0", options.temperature);
  invariant(student.shape()[0] == taught && taught == ids.numel(),
            "student and teacher have logits of the same tokens");
}

}  // namespace

DistilledTokens distill(Tape& tape, const Distillation& options, const Var& student, const Tensor& teacher,
                        const Tensor& ids, double scale, const ops::VocabularyRanks& ranks) {
  check(options, student, teacher.dim(0), ids);
  invariant(student.shape() == teacher.shape(), "student and teacher have one vocabulary");
  const VocabularyRows rows(ranks);
  Tape quiet(false);
  const Var given = rows.shifted(quiet, quiet.constant(teacher), options.temperature),
            own = rows.shifted(tape, student, options.temperature);
  return compare(tape, options, {rows, student, own}, {rows, given, own, given.value, own.value}, ids, scale);
}

DistilledTokens distill(Tape& tape, const Distillation& options, const Var& student, const TopTokens& teacher,
                        const Tensor& ids, double scale, const ops::VocabularyRanks& ranks) {
  check(options, student, teacher.num_tokens(), ids);
  const VocabularyRows rows(ranks), outcomes({});
  const Device device = student.value.device();
  Tape quiet(false);
  const Var given = outcomes.shifted(quiet, quiet.constant(teacher.logits.on(device)), options.temperature);
  const Var own = rows.shifted(tape, student, options.temperature), top = rows.at(tape, own, teacher.ids);
  const Var rest = rows.log_sum_of_others(tape, own, teacher.ids);
  return compare(tape, options, {rows, student, own},
                 {outcomes, p::concat_last(quiet, given, quiet.constant(teacher.rest.on(device))),
                  p::concat_last(tape, top, rest), given.value, top.value},
                 ids, scale);
}

}  // namespace temper::losses
