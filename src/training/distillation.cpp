#include "training/distillation.h"

#include <algorithm>

#include "base/error.h"
#include "layers/quantizers.h"
#include "primitives/primitives.h"
#include "training/flops.h"

namespace temper::training {
namespace {

namespace p = primitives;

// Logits that are there at once, of each tensor that the loss is made of: 64 MiB of float32.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;

// The target tokens of a pass, some of them.
struct Targets {
  Tensor positions, ids;  // [n] int32, on the CPU
};

std::vector<Targets> cut_targets(const Tensor& targets, int64_t vocab) {
  const auto most = static_cast<size_t>(std::max<int64_t>(1, kLogitsAtOnce / vocab));
  const auto all = targets.values<int32_t>();
  std::vector<Targets> parts;
  std::vector<int32_t> positions, ids;
  const auto push = [&] {
    if (!ids.empty()) parts.push_back({Tensor::from(positions), Tensor::from(ids)});
    positions.clear();
    ids.clear();
  };
  for (size_t t = 0; t < all.size(); ++t) {
    if (all[t] == data::kIgnore) continue;
    positions.push_back(static_cast<int32_t>(t));
    ids.push_back(all[t]);
    if (ids.size() == most) push();
  }
  push();
  return parts;
}

Var logits_of(Tape& tape, const layers::Decoder& model, const Var& hidden, const Tensor& positions,
              layers::AdapterRows rows) {
  const Var own = p::gather_rows(tape, hidden, p::ChosenRows(positions, hidden.shape()[0], tape.recording()));
  rows.rows = positions.numel();
  rows.first_row += positions.data<int32_t>()[0];  // dropout differs from part to part
  return model.own_logits(tape, own, rows);
}

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
    int64_t targets = 0;
    for (const data::PackedRow& row : rows) targets += row.num_targets();
    targets = ranks.sum("target tokens of the distillation", targets);
    scale_ = targets == 0 ? 0 : 1 / static_cast<double>(targets);
  }

  Var of(Tape& tape, const Learnt& learnt, PendingStep& pending) override {
    const Tape outer(false);
    const Var hidden = outer.variable(learnt.hidden.value);
    DistillationResult result;
    const double loss = compare(hidden, learnt.targets, learnt.documents, learnt.rows, true, result);
    pending.add_distillation(loss, result);
    pending.add_work(0, forward_flops(objective_.teacher_.config(), learnt.documents));
    return loss_with_gradient(tape, learnt, hidden, loss);
  }

  // Of the pass over the next rows, whose documents these are: their part of the loss.
  double compare(const Var& hidden, const Tensor& targets, std::span<const DocumentSpan> documents,
                 const layers::AdapterRows& rows, bool learns, DistillationResult& result) {
    const Tensor taught = teach(std::ssize(documents));
    invariant(taught.dim(0) == hidden.shape()[0], "the teacher reads the student's tokens");
    double loss = 0;
    for (const Targets& part : cut_targets(targets, objective_.model_.config().vocab_size)) {
      Tape tape(learns), quiet(false);
      const Var given = logits_of(quiet, objective_.teacher_, quiet.constant(taught), part.positions, {});
      const Var own = logits_of(tape, objective_.model_, hidden, part.positions, rows);
      const losses::DistilledTokens found =
          losses::distill(tape, objective_.options_, own, given.value, part.ids, scale_,
                          objective_.model_.vocabulary_ranks());
      loss += sum_of(found.loss.value);
      result.add({sum_of(found.divergence), sum_of(found.cross_entropy), sum_of(found.teacher_entropy),
                  sum_of(found.agreement), part.ids.numel()});
      if (learns) tape.backward(found.loss);
    }
    return loss;
  }

 private:
  // Hidden states of the teacher for the rows of so many documents, the next ones.
  Tensor teach(int64_t documents) {
    const size_t begin = next_;
    while (documents > 0) documents -= std::ssize(rows_[next_++].document_lengths);
    invariant(documents == 0, "passes are of whole rows");
    const layers::Decoder& teacher = objective_.teacher_;
    const MicroBatch batch = gather(rows_, begin, next_, fills_up(objective_.model_));
    const layers::QuantizersOff off(teacher.quantizers());
    Tape tape(false);
    return teacher.forward(tape, batch.input).value;
  }

  const Distill& objective_;
  const std::vector<data::PackedRow> rows_;
  size_t next_ = 0;
  double scale_ = 0;  // one over the update's target tokens
};

std::unique_ptr<StepLoss> Distill::begin(const std::vector<data::PackedRow>& rows, const layers::Adapter*,
                                         collectives::Group& ranks) const {
  return std::make_unique<Step>(*this, rows, ranks);
}

EvalResult Distill::evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                             collectives::Group& ranks) const {
  Step step(*this, rows, ranks);
  EvalResult result;
  result.distillation.emplace();
  for_each_pass(model_, adapter, rows, micro_batch_tokens_,
                [&](Tape&, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows& all) {
                  result.loss +=
                      step.compare(hidden, batch.targets, batch.documents, all, false, *result.distillation);
                });
  result.loss = ranks.sum("losses of the evaluation", result.loss);
  sum_over(ranks, result.distillation);
  result.target_tokens = result.distillation->tokens;
  result.distillation = result.distillation->mean();
  return result;
}

}  // namespace temper::training
