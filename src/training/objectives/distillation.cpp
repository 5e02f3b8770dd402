#include "training/objectives/distillation.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "primitives/primitives.h"
#include "quantizers/quantizers.h"
#include "training/passes/divided_tokens.h"
#include "training/passes/flops.h"
#include "training/passes/staged_passes.h"

namespace temper::training {
namespace {

// Of an evaluation, whose hidden states of a teacher in stages are there at once.
constexpr size_t kPassesAhead = 8;

double sum_of(const Tensor& values) {
  const Tensor here = values.on({});
  double sum = 0;
  for (const float value : here.values<float>()) sum += value;
  return sum;
}

}  // namespace

// Of rows in their order.
class Distill::Step : public StepLoss {
 public:
  Step(const Distill& objective, const std::vector<data::PackedRow>& rows, collectives::Group& ranks)
      : objective_(objective), rows_(rows) {
    const int64_t targets = ranks.sum("target tokens of the distillation", data::num_targets(rows));
    scale_ = targets == 0 ? 0 : 1 / static_cast<double>(targets);
  }

  // Has a teacher in stages read the next rows, all of which the student reads before others come. All stages
  // call it.
  void read_ahead(const std::vector<data::PackedRow>& rows) {
    if (!objective_.reads_ahead()) return;
    const layers::Decoder& teacher = *objective_.teacher_;
    const quantizers::QuantizersOff off(teacher.quantizers());
    std::vector<MicroBatch> batches;  // as the student reads them
    for (const auto& [begin, end] :
         cut_micro_batches(objective_.model_, rows, objective_.micro_batch_tokens_))
      batches.push_back(gather(rows, begin, end, form_of(objective_.model_)));
    const int last = teacher.ranks().stages.num_parts() - 1;
    read_passes(teacher, batches.size(),
                {[&](Tape& tape, size_t batch, const layers::Decoder::Part& part) {
                   const Var made = teacher.forward(tape, batches[batch].input, {}, part);
                   if (part.index == last) ahead_.push_back(made.value);
                   return made;
                 },
                 [&](size_t batch) { return teacher.make_part_input(batches[batch].input); }});
  }

  Var of(Tape& tape, const LossInputs& inputs, PendingStep& pending) override {
    const Tape outer(false);
    const Var hidden = outer.variable(inputs.hidden.value);
    DistillationResult result;
    const double loss =
        compare(hidden, inputs.targets, inputs.cut, inputs.documents, inputs.rows, true, result);
    pending.add_distillation(loss, result);
    if (objective_.teacher_ != nullptr)
      pending.add_objective_work(forward_flops(objective_.teacher_->config(), inputs.documents));
    return loss_with_gradient(tape, inputs, hidden, loss);
  }

  // Of the pass over the next rows, whose documents these are: their part of the loss.
  double compare(const Var& hidden, const Tensor& targets, const layers::TokenCut& cut,
                 std::span<const DocumentSpan> documents, const layers::AdapterRows& rows, bool learns,
                 DistillationResult& result) {
    const TeacherOutputs teacher = read_teacher(std::ssize(documents), hidden.shape()[0], targets, cut);
    double loss = 0;
    int64_t done = 0;
    for (const Targets& part : cut_targets(cut.own_of(targets), objective_.model_.config().vocab_size)) {
      Tape tape(learns);
      const Var own = logits_of(tape, objective_.model_, hidden, part.positions, rows);
      const losses::DistilledTokens found = compare(tape, own, teacher, part, done, result);
      done += part.ids.numel();
      loss += sum_of(found.loss.value);
      result.add({sum_of(found.divergence), sum_of(found.cross_entropy), sum_of(found.teacher_entropy),
                  sum_of(found.agreement), part.ids.numel()});
      watch(own.value, result.student_logits);
      if (learns) tape.backward(found.loss);
    }
    return loss;
  }

 private:
  // What the teacher has for a pass: hidden states, or what is known of it at all targets.
  struct TeacherOutputs {
    Tensor hidden;
    losses::TopTokens tokens;
  };

  // For the next rows, which have `documents` documents and `tokens` tokens.
  TeacherOutputs read_teacher(int64_t documents, int64_t tokens, const Tensor& targets,
                              const layers::TokenCut& cut) {
    const size_t begin = next_;
    while (documents > 0) documents -= std::ssize(rows_[next_++].document_lengths);
    invariant(documents == 0, "passes are of whole rows");
    if (objective_.known_ != nullptr)
      return {{},
              own_of(objective_.known_->of(std::span(rows_).subspan(begin, next_ - begin)), targets, cut)};
    const layers::Decoder& teacher = *objective_.teacher_;
    if (objective_.reads_ahead()) {
      invariant(!ahead_.empty() && ahead_.front().dim(0) == tokens,
                "the teacher has read the student's tokens");
      Tensor hidden = std::move(ahead_.front());
      ahead_.pop_front();
      return {std::move(hidden), {}};
    }
    const MicroBatch batch = gather(rows_, begin, next_, form_of(objective_.model_));
    const quantizers::QuantizersOff off(teacher.quantizers());
    Tape tape(false);
    const Tensor hidden = teacher.forward(tape, batch.input).value;
    invariant(hidden.dim(0) == tokens, "the teacher reads the student's tokens");
    return {hidden, {}};
  }

  // Of what is known of all targets of a pass, what is known of the rank's own.
  losses::TopTokens own_of(const losses::TopTokens& all, const Tensor& targets,
                           const layers::TokenCut& cut) const {
    if (cut.is_whole()) return all;
    std::vector<int32_t> tokens;
    const auto ids = targets.values<int32_t>();
    for (size_t t = 0; t < ids.size(); ++t)
      if (ids[t] != data::kIgnore) tokens.push_back(static_cast<int32_t>(t));
    const DividedTokens divided(objective_.model_, cut, tokens);
    const Tensor rows = Tensor::from(std::vector<int32_t>(divided.index().begin(), divided.index().end()));
    Tape quiet(false);
    const auto chosen = [&](const Tensor& of_all) {
      return primitives::gather_rows(quiet, quiet.constant(of_all),
                                     primitives::ChosenRows(rows, of_all.dim(0), false))
          .value;
    };
    return {chosen(all.ids), chosen(all.logits), chosen(all.rest)};
  }

  // `done`: targets of the pass before this part.
  losses::DistilledTokens compare(Tape& tape, const Var& own, const TeacherOutputs& teacher,
                                  const Targets& part, int64_t done, DistillationResult& result) const {
    const ops::VocabularyRanks ranks = objective_.model_.vocabulary_ranks();
    const losses::Distillation& loss = objective_.options_;
    if (teacher.tokens.ids.defined())
      return losses::distill(tape, loss, own, teacher.tokens.narrow(done, part.ids.numel()), part.ids, scale_,
                             ranks);
    Tape quiet(false);
    const Tensor given =
        logits_of(quiet, *objective_.teacher_, quiet.constant(teacher.hidden), part.positions, {}).value;
    watch(given, result.teacher_logits);
    if (objective_.top_k_ == 0) return losses::distill(tape, loss, own, given, part.ids, scale_, ranks);
    return losses::distill(tape, loss, own,
                           losses::top_tokens(given, objective_.top_k_, loss.temperature, ranks), part.ids,
                           scale_, ranks);
  }

  void watch(const Tensor& logits, losses::LogitStatistics& statistics) const {
    if (objective_.watches_logits_)
      statistics.add(losses::statistics_of(logits, objective_.model_.vocabulary_ranks()));
  }

  const Distill& objective_;
  const std::vector<data::PackedRow> rows_;
  size_t next_ = 0;
  std::deque<Tensor> ahead_;  // hidden states of the next passes
  double scale_ = 0;          // one over the update's target tokens
};

std::unique_ptr<StepLoss> Distill::begin(const std::vector<data::PackedRow>& rows, const layers::Adapter*,
                                         collectives::Group& ranks) const {
  auto step = std::make_unique<Step>(*this, rows, ranks);
  step->read_ahead(rows);
  return step;
}

bool Distill::reads_ahead() const { return teacher_ != nullptr && teacher_->ranks().stages.count() > 1; }

// All of them; where the teacher reads ahead some passes' after the other.
std::vector<std::vector<data::PackedRow>> Distill::parts_of(const std::vector<data::PackedRow>& rows) const {
  if (!reads_ahead()) return {rows};
  std::vector<std::vector<data::PackedRow>> parts;
  const auto passes = cut_micro_batches(model_, rows, micro_batch_tokens_);
  for (size_t first = 0; first < passes.size(); first += kPassesAhead) {
    const size_t last = std::min(first + kPassesAhead, passes.size()) - 1;
    parts.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(passes[first].first),
                       rows.begin() + static_cast<std::ptrdiff_t>(passes[last].second));
  }
  return parts;
}

EvalResult Distill::evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                             const parallel::UpdateRanks& ranks) const {
  Step step(*this, rows, ranks.rows);
  EvalResult result;
  result.distillation.emplace();
  for (const std::vector<data::PackedRow>& part : parts_of(rows)) {
    step.read_ahead(part);
    for_each_pass(model_, adapter, part, micro_batch_tokens_,
                  [&](Tape&, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows& all) {
                    result.loss += step.compare(hidden, batch.targets, batch.input.cut, batch.documents, all,
                                                false, *result.distillation);
                  });
  }
  result.loss = ranks.results.sum("losses of the evaluation", result.loss);
  sum_over(ranks.results, result.distillation);
  result.target_tokens = result.distillation->tokens;
  result.distillation = result.distillation->mean();
  return result;
}

}  // namespace temper::training
