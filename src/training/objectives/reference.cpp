#include "training/objectives/reference.h"

#include <optional>

#include "base/error.h"
#include "quantizers/quantizers.h"
#include "training/passes/divided_tokens.h"
#include "training/passes/flops.h"

namespace temper::training {

namespace {

size_t count_answers(const std::vector<data::PackedRow>& rows) {
  size_t count = 0;
  for (const data::PackedRow& row : rows)
    for (const std::vector<data::Answer>& document : row.answers) count += document.size();
  return count;
}

}  // namespace

std::vector<AnswerLogp> answer_logps(const Tensor& nll, const Tensor& targets,
                                     std::span<const DocumentSpan> documents) {
  std::vector<AnswerLogp> answers;
  const auto losses = nll.values<float>();
  const auto expected = targets.values<int32_t>();
  size_t token = 0;
  for (const DocumentSpan& document : documents) {
    invariant(!document.answers.empty(), "every document has answers");
    token += static_cast<size_t>(document.shared());
    for (const data::Answer& answer : document.answers) {
      AnswerLogp sum;
      for (const size_t end = token + static_cast<size_t>(answer.length); token < end; ++token) {
        sum.logp -= losses[token];
        sum.tokens += expected[token] != data::kIgnore;
      }
      answers.push_back(sum);
    }
  }
  return answers;
}

std::vector<AnswerLogp> answer_logps(const layers::Decoder& model, const layers::Adapter* adapter,
                                     const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens) {
  std::vector<AnswerLogp> answers;
  for_each_pass(model, adapter, rows, micro_batch_tokens,
                [&](Tape& tape, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows& all) {
                  const Tensor own = model.loss(tape, hidden, batch.own_targets(), {}, all).nll.on({});
                  const Tensor nll = all_tokens(model, batch.input.cut, own);
                  for (const AnswerLogp& answer : answer_logps(nll, batch.targets, batch.documents))
                    answers.push_back(answer);
                });
  return of_last_stage(model, "log-probabilities of answers", std::move(answers),
                       static_cast<int64_t>(count_answers(rows)));
}

std::vector<double> ModelReference::logps(const std::vector<data::PackedRow>& rows) const {
  std::optional<quantizers::QuantizersOff> off;
  if (!model_.quantizers().are_weights_rounded()) off.emplace(model_.quantizers());
  std::vector<double> sums;
  for (const AnswerLogp& answer : answer_logps(model_, nullptr, rows, micro_batch_tokens_))
    sums.push_back(answer.logp);
  return sums;
}

double ModelReference::flops(std::span<const DocumentSpan> documents) const {
  return forward_flops(model_.config(), documents);
}

}  // namespace temper::training
