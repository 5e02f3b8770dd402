#include "training/objectives/value_learning.h"

#include "base/error.h"
#include "losses/returns.h"
#include "primitives/primitives.h"
#include "training/objectives/sampled_answers.h"
#include "training/passes/divided_tokens.h"

namespace temper::training {
namespace {

namespace p = primitives;

Var values_at(Tape& tape, const layers::Decoder& model, const Var& hidden,
              const std::vector<int32_t>& positions, layers::AdapterRows rows) {
  rows.rows = std::ssize(positions);
  rows.pieces.clear();
  const p::ChosenRows chosen(Tensor::from(positions), hidden.shape()[0], tape.recording());
  return model.values(tape, p::gather_rows(tape, hidden, chosen), rows);
}

}  // namespace

// Judges the values of sampled tokens in the order of the step's rows.
class ValueLearning::Step : public StepLoss {
 public:
  Step(const ValueLearning& objective, const std::vector<data::PackedRow>& rows, collectives::Group& ranks)
      : objective_(objective),
        sampled_(sampled_tokens(rows)),
        tokens_(ranks.sum("sampled tokens", std::ssize(sampled_.values))) {}

  Var of(Tape& tape, const LossInputs& inputs, PendingStep& pending) override {
    const SampledAnswers answers = find_sampled(inputs.targets, inputs.documents);
    const Tape outer(false);
    const Var hidden = outer.variable(inputs.hidden.value);
    ValueResult result;
    double loss = 0;
    const DividedTokens divided(objective_.model_, inputs.cut, answers.positions);
    if (!divided.positions().empty()) {
      Tape own;
      const Var values = values_at(own, objective_.model_, hidden, divided.positions(), inputs.rows);
      own.backward(values, judge(values, divided.index(), result, loss));
    }
    next_ += answers.positions.size();
    pending.add_values(loss, result);
    return loss_with_gradient(tape, inputs, hidden, loss);
  }

 private:
  // The loss's gradient by each value; `index` of the next sampled tokens.
  Tensor judge(const Var& values, const std::vector<size_t>& index, ValueResult& result, double& loss) const {
    const Tensor now = values.value.on({});
    std::vector<float> slopes;
    // All tensor ranks compute all values: of their gradients each gives its share, whose sum is whole.
    const int sharers = objective_.model_.ranks().tensor_ranks();
    for (size_t i = 0; i < index.size(); ++i) {
      const size_t token = next_ + index[i];
      const losses::ValueLoss found = losses::value_loss(now.values<float>()[i], sampled_.values[token],
                                                         sampled_.returns[token], objective_.options_.clip);
      loss += found.loss / static_cast<double>(tokens_);
      slopes.push_back(static_cast<float>(found.gradient / (static_cast<double>(tokens_) * sharers)));
      result.clipped += found.clipped;
      ++result.tokens;
    }
    return Tensor::from(slopes).reshape(values.shape()).on(values.value.device(), MemoryTag::kActivations);
  }

  const ValueLearning& objective_;
  const data::TokenColumns sampled_;
  const int64_t tokens_;  // of the update, of all ranks
  size_t next_ = 0;       // of sampled_
};

std::unique_ptr<StepLoss> ValueLearning::begin(const std::vector<data::PackedRow>& rows,
                                               const layers::Adapter*, collectives::Group& ranks) const {
  return std::make_unique<Step>(*this, rows, ranks);
}

EvalResult ValueLearning::evaluate(const std::vector<data::PackedRow>&, const layers::Adapter*,
                                   const parallel::UpdateRanks&) const {
  invariant(false, "a critic is not evaluated by itself");
  return {};
}

TokenValues token_values(const layers::Decoder& model, const layers::Adapter* adapter,
                         const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens) {
  TokenValues all;
  for_each_pass(
      model, adapter, rows, micro_batch_tokens,
      [&](Tape& tape, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows& all_rows) {
        std::vector<int32_t> positions = find_sampled(batch.targets, batch.documents).positions;
        for (std::vector<float>* const to : {&all.before, &all.behind}) {
          const DividedTokens divided(model, batch.input.cut, positions);
          Tensor own = Tensor::zeros({0}, DType::kF32, MemoryTag::kData);
          if (!divided.positions().empty())
            own = values_at(tape, model, hidden, divided.positions(), all_rows).value.on({});
          const std::vector<float> found = divided.gather({own.data<float>(), divided.positions().size()});
          to->insert(to->end(), found.begin(), found.end());
          for (int32_t& position : positions) ++position;
        }
      });
  for (std::vector<float>* const values : {&all.before, &all.behind})
    *values = of_last_stage(model, "values of tokens", std::move(*values), data::num_targets(rows));
  return all;
}

}  // namespace temper::training
