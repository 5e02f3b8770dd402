#include "training/objectives/policy.h"

#include <array>
#include <cmath>

#include "ops/token_log_probs/token_log_probs.h"
#include "primitives/primitives.h"
#include "training/objectives/sampled_answers.h"
#include "training/passes/divided_tokens.h"

namespace temper::training {
namespace {

namespace p = primitives;

// Logits of at most this number of tokens exist at once, unless one answer is longer.
constexpr int64_t kTargetsAtOnce = 2048;

// The tokens of some answers of a pass.
struct Chosen {
  Chosen(const layers::Decoder& model, const layers::TokenCut& cut, const SampledAnswers& answers,
         int64_t begin, int64_t count)
      : divided(model, cut, part(answers.positions, begin, count)),
        positions(Tensor::from(divided.positions())),
        ids(Tensor::from(divided.own_of(part(answers.ids, begin, count)))) {}
  static std::span<const int32_t> part(const std::vector<int32_t>& all, int64_t begin, int64_t count) {
    return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }

  DividedTokens divided;
  Tensor positions, ids;  // [n] int32, on the CPU: of those that this rank computes, which may be none
};

Var logits_of(Tape& tape, const layers::Decoder& model, const Var& hidden, const Chosen& chosen,
              layers::AdapterRows rows) {
  const Var own =
      p::gather_rows(tape, hidden, p::ChosenRows(chosen.positions, hidden.shape()[0], tape.recording()));
  rows.rows = chosen.ids.numel();
  rows.pieces.clear();
  return rows.adapter == nullptr ? model.logits(tape, own) : model.logits(tape, own, {rows});
}

// Σ weights · x.
Var weighted_sum(Tape& tape, const Var& x, const std::vector<float>& weights) {
  const Tensor factors = Tensor::from(weights).on(x.value.device(), MemoryTag::kData);
  const Var products = p::mul(tape, x, tape.constant(factors));
  return p::reshape(tape, p::sum_last(tape, p::reshape(tape, products, {1, x.value.numel()})), {});
}

}  // namespace

// Judges sampled tokens in the order of the step's rows.
class PolicyGradient::Step : public StepLoss {
 public:
  Step(const PolicyGradient& objective, const std::vector<data::PackedRow>& rows, collectives::Group& ranks)
      : model_(objective.model_), options_(objective.options_), sampled_(sampled_tokens(rows)) {
    std::array<int64_t, 2> counts{count_sampled(rows), std::ssize(sampled_.advantages)};
    ranks.sum("sampled answers and tokens", std::span<int64_t>(counts));
    update_ = {counts[0], counts[1], options_.most_tokens};
  }

  Var of(Tape& tape, const LossInputs& inputs, PendingStep& pending) override {
    const SampledAnswers answers = find_sampled(inputs.targets, inputs.documents);
    const Tape outer(false);
    const Var hidden = outer.variable(inputs.hidden.value);
    PolicyResult result;
    for (const auto& [lengths, first, targets] : answers.parts(kTargetsAtOnce))
      learn(hidden, Chosen(model_, inputs.cut, answers, first, targets), lengths, inputs.rows, result);
    pending.add_policy(result.sums.loss, result);
    return loss_with_gradient(tape, inputs, hidden, result.sums.loss);
  }

 private:
  // Whole answers: their loss, and its gradient by hidden states and the head.
  void learn(const Var& hidden, const Chosen& chosen, std::span<const int64_t> lengths,
             const layers::AdapterRows& rows, PolicyResult& result) {
    Tape tape;
    const bool learns_entropy = options_.entropy_factor != 0;
    ops::TokenLogProbs::Vars found;
    Tensor now = Tensor::zeros({0}, DType::kF32, MemoryTag::kData), entropies = now;
    if (chosen.ids.numel() > 0) {
      using Entropies = ops::TokenLogProbs::Entropies;
      found = ops::token_log_probs(tape, model_.ops().at<ops::TokenLogProbs>("head"),
                                   logits_of(tape, model_, hidden, chosen, rows),
                                   chosen.ids.on(model_.device(), MemoryTag::kData), options_.temperature,
                                   learns_entropy ? Entropies::kTrained : Entropies::kValues);
      now = found.log_probs.value.on({});
      entropies = found.entropies.value.on({});
    }
    const auto own = [&](const Tensor& of_tokens) {
      return std::span<const float>(of_tokens.data<float>(), static_cast<size_t>(chosen.ids.numel()));
    };
    const std::vector<float> slopes = judge(chosen.divided.gather(own(now)), lengths, result);
    const std::vector<float> all_entropies = chosen.divided.gather(own(entropies));
    for (const float entropy : all_entropies) result.entropy += entropy;
    const std::vector<float> by_entropy =
        learns_entropy ? entropy_slopes(all_entropies, result) : std::vector<float>();
    if (chosen.ids.numel() == 0) return;
    const auto of_own = [&](const std::vector<float>& all) {
      return chosen.divided.own_of(std::span<const float>(all));
    };
    Var total = weighted_sum(tape, found.log_probs, of_own(slopes));
    if (learns_entropy) total = p::add(tape, total, weighted_sum(tape, found.entropies, of_own(by_entropy)));
    tape.backward(total);
  }

  // The loss's gradient by each log-probability.
  std::vector<float> judge(std::span<const float> now, std::span<const int64_t> lengths,
                           PolicyResult& result) {
    std::vector<float> slopes;
    size_t at = 0;
    for (const int64_t length : lengths) {
      const auto count = static_cast<size_t>(length);
      const Columns own(sampled_, next_, now.subspan(at, count));
      std::vector<double> gradients(count);
      losses::policy_loss(options_.loss, own.answer(options_), update_, gradients, result.sums);
      slopes.insert(slopes.end(), gradients.begin(), gradients.end());
      next_ += count;
      at += count;
    }
    return slopes;
  }

  // -factor · the mean over the update's tokens; its part of the loss is added.
  std::vector<float> entropy_slopes(std::span<const float> entropies, PolicyResult& result) const {
    const double slope = -options_.entropy_factor / static_cast<double>(update_.tokens);
    for (const float entropy : entropies) result.sums.loss += slope * entropy;
    return std::vector<float>(entropies.size(), static_cast<float>(slope));
  }

  // An answer's tokens, from the first on, as the formulas read them.
  struct Columns {
    Columns(const data::TokenColumns& all, size_t first, std::span<const float> log_probs)
        : now(log_probs.begin(), log_probs.end()) {
      const auto part = [&](const data::TokenColumns::Column& column) {
        const auto own = std::span(column).subspan(first, now.size());
        return std::vector<double>(own.begin(), own.end());
      };
      old = part(all.old_log_probs);
      for (size_t i = 0; i < old.size(); ++i)
        if (std::isnan(old[i])) old[i] = now[i];
      reference = part(all.reference_log_probs);
      rollout = part(all.rollout_log_probs);
      advantages = part(all.advantages);
      kept = part(all.kept);
    }
    losses::PolicyAnswer answer(const PolicyOptions& options) const {
      losses::PolicyAnswer all{now, old, reference, rollout, advantages, kept};
      if (options.loss.beta == 0 && !options.tells_kl) all.reference = {};
      if (!options.corrects_truncation) all.kept = {};
      return all;
    }
    std::vector<double> now, old, reference, rollout, advantages, kept;
  };

  const layers::Decoder& model_;
  const PolicyOptions options_;
  data::TokenColumns sampled_;
  losses::PolicyUpdate update_;
  size_t next_ = 0;  // of sampled_
};

std::unique_ptr<StepLoss> PolicyGradient::begin(const std::vector<data::PackedRow>& rows,
                                                const layers::Adapter*, collectives::Group& ranks) const {
  return std::make_unique<Step>(*this, rows, ranks);
}

EvalResult PolicyGradient::evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                                    const parallel::UpdateRanks& ranks) const {
  return training::evaluate(model_, adapter, rows, micro_batch_tokens_, ranks);
}

std::vector<float> target_log_probs(const layers::Decoder& model, const layers::Adapter* adapter,
                                    const std::vector<data::PackedRow>& rows, double temperature,
                                    int64_t micro_batch_tokens) {
  std::vector<float> all;
  for_each_pass(
      model, adapter, rows, micro_batch_tokens,
      [&](Tape& tape, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows& every) {
        const SampledAnswers answers = find_sampled(batch.targets, batch.documents);
        for (const SampledAnswers::Part& part : answers.parts(kTargetsAtOnce)) {
          const Chosen chosen(model, batch.input.cut, answers, part.first, part.targets);
          Tensor own = Tensor::zeros({0}, DType::kF32, MemoryTag::kData);
          if (chosen.ids.numel() > 0)
            own = ops::token_log_probs(tape, model.ops().at<ops::TokenLogProbs>("head"),
                                       logits_of(tape, model, hidden, chosen, every),
                                       chosen.ids.on(model.device(), MemoryTag::kData), temperature)
                      .log_probs.value.on({});
          const std::vector<float> found =
              chosen.divided.gather({own.data<float>(), static_cast<size_t>(chosen.ids.numel())});
          all.insert(all.end(), found.begin(), found.end());
        }
      });
  return of_last_stage(model, "log-probabilities of sampled tokens", std::move(all), data::num_targets(rows));
}

}  // namespace temper::training
