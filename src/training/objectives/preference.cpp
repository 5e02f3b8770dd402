#include "training/objectives/preference.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "primitives/primitives.h"
#include "training/objectives/gather_rows.h"
#include "training/passes/divided_tokens.h"

namespace temper::training {
namespace {

// A document's prompt, and what follows it in one of its answers.
struct Dialogue {
  std::vector<int32_t> prompt, answer, targets;  // targets: of the prompt's last token, then of the answer's
};

Dialogue dialogue_of(const data::PackedRow& row, int64_t first, int64_t shared, int64_t begin,
                     int64_t length) {
  const auto at = [](const auto& values, int64_t i) { return values.begin() + i; };
  std::vector<int32_t> ids(at(row.ids, first), at(row.ids, first + shared));
  ids.insert(ids.end(), at(row.ids, begin), at(row.ids, begin + length));
  std::vector<int32_t> targets(static_cast<size_t>(shared), data::kIgnore);
  targets.insert(targets.end(), at(row.targets, begin), at(row.targets, begin + length));
  const auto first_target = std::find_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
  const auto prompt = std::min(first_target - targets.begin() + 1, std::ssize(targets));
  return {{ids.begin(), ids.begin() + prompt},
          {ids.begin() + prompt, ids.end()},
          {targets.begin() + prompt - 1, targets.end()}};
}

// By document, then by answer.
std::vector<std::vector<Dialogue>> dialogues_of(const std::vector<data::PackedRow>& rows) {
  std::vector<std::vector<Dialogue>> documents;
  for (const data::PackedRow& row : rows) {
    int64_t first = 0;
    for (size_t d = 0; d < row.document_lengths.size(); ++d) {
      const DocumentSpan span{row.document_lengths[d], 0, 0, row.answers[d]};
      int64_t begin = first + span.shared();
      std::vector<Dialogue>& document = documents.emplace_back();
      for (const data::Answer& answer : span.answers) {
        document.push_back(dialogue_of(row, first, span.shared(), begin, answer.length));
        begin += answer.length;
      }
      first += span.length;
    }
  }
  return documents;
}

data::PackedRow joined(const Dialogue& asked, const Dialogue& answered, int64_t max_length) {
  data::PackedRow row;
  row.ids = asked.prompt;
  row.ids.insert(row.ids.end(), answered.answer.begin(), answered.answer.end());
  row.targets.assign(asked.prompt.size() - 1, data::kIgnore);
  row.targets.insert(row.targets.end(), answered.targets.begin(), answered.targets.end());
  const auto size = std::min(row.ids.size(), static_cast<size_t>(max_length));
  row.ids.resize(size);
  row.targets.resize(size);
  row.targets.back() = data::kIgnore;
  row.document_lengths = {static_cast<int64_t>(size)};
  row.answers = {{{static_cast<int64_t>(size), true}}};
  return row;
}

// Whether the model and the reference say the same of an answer, to float32's rounding of sums that may run
// in another order: so they do before the first update.
bool is_unmoved(const losses::Answer& answer) {
  constexpr double kRounding = 0x1p-18;
  return std::abs(answer.logp - answer.reference_logp) <= kRounding * std::abs(answer.reference_logp);
}

}  // namespace

std::vector<data::PackedRow> mismatched(const std::vector<data::PackedRow>& rows, int64_t max_length,
                                        collectives::Group& ranks) {
  std::vector<std::vector<Dialogue>> documents;
  size_t first = 0, end = 0;  // of this rank's
  const std::vector<std::vector<data::PackedRow>> all = gather_rows(ranks, rows);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const bool mine = rank == static_cast<size_t>(ranks.rank());
    if (mine) first = documents.size();
    for (auto& document : dialogues_of(all[rank])) documents.push_back(std::move(document));
    if (mine) end = documents.size();
  }
  const auto prompt = [&](size_t d) -> const auto& { return documents[d % documents.size()].front().prompt; };
  std::vector<data::PackedRow> out;
  for (size_t d = 0; d < documents.size(); ++d) {
    size_t other = d + 1;
    while (other < d + documents.size() && prompt(other) == prompt(d)) ++other;
    if (other == d + documents.size())
      fail(
          "KTO compares with answers to other prompts, but the rows of this update have 1 prompt; set "
          "data.shuffle or raise rows_per_step");
    if (d < first || d >= end) continue;
    const std::vector<Dialogue>& next = documents[other % documents.size()];
    for (size_t i = 0; i < documents[d].size(); ++i)
      out.push_back(joined(documents[d][i], next[i % next.size()], max_length));
  }
  return out;
}

bool needs_reference(const PreferenceLoss& loss) {
  if (const auto* dpo = std::get_if<losses::Dpo>(&loss)) return !dpo->reference_free;
  return std::holds_alternative<losses::Kto>(loss);
}

// Judges answers in the order of the step's rows.
class Preference::Step : public StepLoss {
 public:
  Step(const Preference& objective, const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
       collectives::Group& ranks)
      : model_(objective.model_), loss_(objective.loss_), reference_(objective.reference_) {
    const bool paired = !std::holds_alternative<losses::Kto>(loss_);
    for (const data::PackedRow& row : rows)
      for (const std::vector<data::Answer>& answers : row.answers) {
        invariant(paired ? answers.size() == 2 : !answers.empty(), "documents have the loss's answers");
        count_ += paired ? 1 : static_cast<int64_t>(answers.size());
      }
    count_ = ranks.sum("answers of the update", count_);
    if (needs_reference(loss_)) {
      invariant(reference_ != nullptr, "the loss has a reference");
      reference_logps_ = reference_->logps(rows);
    }
    if (!paired) kl_ = estimate_kl(objective, rows, adapter, ranks);
  }

  struct Judged {
    double loss = 0;
    PreferenceResult sums;
    std::vector<double> gradients;  // of the step's loss by each answer's log p
  };
  // The next documents of the step.
  Judged judge(const std::vector<AnswerLogp>& answers, std::span<const DocumentSpan> documents) {
    Judged judged;
    judged.sums.kl = kl_;
    auto next = answers.begin();
    for (const DocumentSpan& document : documents) {
      if (std::holds_alternative<losses::Kto>(loss_)) {
        for (const data::Answer& answer : document.answers) judge_answer(*next++, answer.good, judged);
      } else {
        judge_pair(next[0], next[1], judged);
        next += 2;
      }
    }
    return judged;
  }

  Var of(Tape& tape, const LossInputs& inputs, PendingStep& pending) override {
    if (!reference_logps_.empty()) pending.add_objective_work(reference_->flops(inputs.documents));
    return model_.trains_head(inputs.rows) ? in_two_passes(tape, inputs, pending)
                                           : in_one_pass(tape, inputs, pending);
  }

 private:
  // The gradients of -log p by the hidden states, scaled answer by answer.
  Var in_one_pass(Tape& tape, const LossInputs& inputs, PendingStep& pending) {
    Tape head;
    const Var hidden = head.variable(inputs.hidden.value);
    const auto sum = model_.loss(head, hidden, inputs.own_targets(), {}, inputs.rows);
    const Judged judged =
        judge(answer_logps(all_tokens(model_, inputs.cut, sum.nll.on({})), inputs.targets, inputs.documents),
              inputs.documents);
    pending.add_preference(judged.loss, judged.sums);
    head.backward(sum.loss);
    const Tensor gradient = hidden.slot->take();
    const Tensor factors =
        inputs.cut.own_of(token_factors(judged.gradients, inputs.documents, inputs.targets));
    scale_rows(gradient, factors.values<float>());
    return tape.record(sum.loss.value, {&inputs.hidden},
                       [slot = inputs.hidden.slot, gradient](const Tensor&) { slot->add(gradient); });
  }

  Var in_two_passes(Tape& tape, const LossInputs& inputs, PendingStep& pending) {
    Tape quiet(false);
    const Tensor targets = inputs.own_targets();
    const Tensor nll =
        model_.loss(quiet, quiet.constant(inputs.hidden.value), targets, {}, inputs.rows).nll.on({});
    const Judged judged =
        judge(answer_logps(all_tokens(model_, inputs.cut, nll), inputs.targets, inputs.documents),
              inputs.documents);
    pending.add_preference(judged.loss, judged.sums);
    const Tensor factors = token_factors(judged.gradients, inputs.documents, inputs.targets);
    return model_.loss(tape, inputs.hidden, targets, {1, 0, inputs.cut.own_of(factors)}, inputs.rows).loss;
  }

  // What answers to other prompts gained on the reference: at least 0, and 0 before the first update.
  static double estimate_kl(const Preference& objective, const std::vector<data::PackedRow>& rows,
                            const layers::Adapter* adapter, collectives::Group& ranks) {
    const std::vector<data::PackedRow> others =
        mismatched(rows, objective.model_.config().max_positions, ranks);
    const std::vector<double> before = objective.reference_->logps(others);
    const std::vector<AnswerLogp> now =
        answer_logps(objective.model_, adapter, others, objective.micro_batch_tokens_);
    double sum = 0;
    for (size_t i = 0; i < now.size(); ++i) sum += now[i].logp - before[i];
    sum = ranks.sum("gains of answers to other prompts", sum);
    const int64_t count = ranks.sum("answers to other prompts", std::ssize(now));
    return std::max(sum / static_cast<double>(count), 0.0);
  }

  losses::Answer seen(const AnswerLogp& answer) {
    const double reference = reference_logps_.empty() ? 0 : reference_logps_.at(judged_++);
    return {answer.logp, reference, answer.tokens};
  }

  void judge_pair(const AnswerLogp& chosen, const AnswerLogp& rejected, Judged& judged) {
    const losses::Answer better = seen(chosen), worse = seen(rejected);
    const auto* dpo = std::get_if<losses::Dpo>(&loss_);
    const losses::PairLoss found = dpo != nullptr
                                       ? losses::dpo(*dpo, better, worse)
                                       : losses::orpo(std::get<losses::Orpo>(loss_), better, worse);
    const auto count = static_cast<double>(count_);
    judged.loss += found.loss / count;
    judged.gradients.push_back(found.chosen_gradient / count);
    judged.gradients.push_back(found.rejected_gradient / count);
    const bool undecided = needs_reference(loss_) && is_unmoved(better) && is_unmoved(worse);
    judged.sums.add({found.chosen_reward, found.rejected_reward, better.logp, worse.logp, 1, 1, 1,
                     !undecided && found.chosen_reward > found.rejected_reward, undecided, kl_});
  }

  void judge_answer(const AnswerLogp& answer, bool good, Judged& judged) {
    const losses::AnswerLoss found = losses::kto(std::get<losses::Kto>(loss_), seen(answer), good, kl_);
    judged.loss += found.loss / static_cast<double>(count_);
    judged.gradients.push_back(found.gradient / static_cast<double>(count_));
    PreferenceResult sums;
    (good ? sums.chosen_reward : sums.rejected_reward) = found.reward;
    (good ? sums.chosen_logp : sums.rejected_logp) = answer.logp;
    (good ? sums.chosen : sums.rejected) = 1;
    sums.kl = kl_;
    judged.sums.add(sums);
  }

  // Rows [factors.size(), …], each times its factor.
  static void scale_rows(const Tensor& rows, std::span<const float> factors) {
    Tape quiet(false);
    for (size_t first = 0, end = 0; first < factors.size(); first = end) {
      while (end < factors.size() && factors[end] == factors[first]) ++end;
      const Tensor part = rows.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(end - first));
      part.copy_from(primitives::scale(quiet, quiet.constant(part), factors[first]).value);
    }
  }

  // Of all tokens.
  static Tensor token_factors(const std::vector<double>& gradients, std::span<const DocumentSpan> documents,
                              const Tensor& targets) {
    const Tensor factors = Tensor::zeros(targets.shape(), DType::kF32, MemoryTag::kData);
    float* token = factors.data<float>();
    auto gradient = gradients.begin();
    for (const DocumentSpan& document : documents) {
      token += document.shared();
      for (const data::Answer& answer : document.answers) {
        std::fill_n(token, answer.length, static_cast<float>(-*gradient++));
        token += answer.length;
      }
    }
    return factors;
  }

  const layers::Decoder& model_;
  PreferenceLoss loss_;
  std::shared_ptr<const Reference> reference_;
  std::vector<double> reference_logps_;  // of all answers of the step; none: it is not asked
  size_t judged_ = 0;
  int64_t count_ = 0;  // of pairs, or of answers
  double kl_ = 0;
};

void Preference::check(const std::vector<data::PackedRow>& rows, collectives::Group& ranks) const {
  if (std::holds_alternative<losses::Kto>(loss_)) mismatched(rows, model_.config().max_positions, ranks);
}

std::unique_ptr<StepLoss> Preference::begin(const std::vector<data::PackedRow>& rows,
                                            const layers::Adapter* adapter, collectives::Group& ranks) const {
  return std::make_unique<Step>(*this, rows, adapter, ranks);
}

EvalResult Preference::evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                                const parallel::UpdateRanks& ranks) const {
  Step step(*this, rows, adapter, ranks.rows);
  std::vector<DocumentSpan> documents;
  EvalResult result;
  for (DocumentSpan& document : gather(rows, 0, rows.size()).documents) {
    result.target_tokens += document.target_tokens;
    documents.push_back(std::move(document));
  }
  const Step::Judged judged = step.judge(answer_logps(model_, adapter, rows, micro_batch_tokens_), documents);
  result.target_tokens = ranks.rows.sum("target tokens of the evaluation", result.target_tokens);
  result.loss = ranks.rows.sum("losses of the evaluation", judged.loss);
  result.preference = judged.sums;
  sum_over(ranks.rows, result.preference);
  result.preference = result.preference->mean();
  return result;
}

}  // namespace temper::training
