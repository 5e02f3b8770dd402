#include <gtest/gtest.h>

#include <cmath>

#include "training/objectives/preference_test_support.h"

namespace temper::training {
namespace {

using op_testing::close;
using op_testing::values_of;

// What a loss of documents' answers should be, from hidden states and the head alone, in double.
struct Expected {
  double loss = 0;
  PreferenceResult means;
  Doubles dhidden, dweight;
};

struct Head {
  Doubles hidden, weight;
  int64_t width, vocab;
  // log p of every token of the vocabulary behind a token.
  Doubles logps(size_t token) const {
    Doubles logits(static_cast<size_t>(vocab));
    double sum = 0;
    for (size_t w = 0; w < logits.size(); ++w) {
      for (size_t i = 0; i < static_cast<size_t>(width); ++i)
        logits[w] +=
            hidden[token * static_cast<size_t>(width) + i] * weight[w * static_cast<size_t>(width) + i];
      sum += std::exp(logits[w]);
    }
    for (double& logit : logits) logit -= std::log(sum);
    return logits;
  }
};

struct Seen {
  size_t begin, end;
  losses::Answer answer;
  bool good;
};

std::vector<Seen> seen_answers(const Head& head, const MicroBatch& batch,
                               const std::vector<double>& reference) {
  std::vector<Seen> all;
  size_t token = 0;
  for (const DocumentSpan& document : batch.documents) {
    token += static_cast<size_t>(document.shared());
    for (const data::Answer& answer : document.answers) {
      Seen seen{
          token, token + static_cast<size_t>(answer.length), {0, reference[all.size()], 0}, answer.good};
      for (; token < seen.end; ++token) {
        const int32_t target = batch.targets.data<int32_t>()[token];
        if (target == data::kIgnore) continue;
        seen.answer.logp += head.logps(token)[static_cast<size_t>(target)];
        ++seen.answer.tokens;
      }
      all.push_back(seen);
    }
  }
  return all;
}

// Adds dloss/dlogp of one answer, times the gradient of its log-probability.
void add_gradient(const Head& head, const MicroBatch& batch, const Seen& seen, double slope, Expected& out) {
  const auto width = static_cast<size_t>(head.width);
  for (size_t t = seen.begin; t < seen.end; ++t) {
    const int32_t target = batch.targets.data<int32_t>()[t];
    if (target == data::kIgnore) continue;
    const Doubles logps = head.logps(t);
    for (size_t w = 0; w < logps.size(); ++w) {
      const double dlogit = slope * ((static_cast<int32_t>(w) == target ? 1 : 0) - std::exp(logps[w]));
      for (size_t i = 0; i < width; ++i) {
        out.dhidden[t * width + i] += dlogit * head.weight[w * width + i];
        out.dweight[w * width + i] += dlogit * head.hidden[t * width + i];
      }
    }
  }
}

Expected expected_of(const PreferenceLoss& loss, const Head& head, const MicroBatch& batch,
                     const std::vector<Seen>& seen, double kl) {
  Expected out{0, {}, Doubles(head.hidden.size()), Doubles(head.weight.size())};
  const auto count = static_cast<double>(is_kto(loss) ? seen.size() : seen.size() / 2);
  for (size_t i = 0; i < seen.size(); i += is_kto(loss) ? 1 : 2) {
    if (const auto* kto = std::get_if<losses::Kto>(&loss)) {
      const losses::AnswerLoss found = losses::kto(*kto, seen[i].answer, seen[i].good, kl);
      out.loss += found.loss / count;
      add_gradient(head, batch, seen[i], found.gradient / count, out);
      const double reward = kto->beta * (seen[i].answer.logp - seen[i].answer.reference_logp);
      (seen[i].good ? out.means.chosen_reward : out.means.rejected_reward) += reward;
      (seen[i].good ? out.means.chosen_logp : out.means.rejected_logp) += seen[i].answer.logp;
      ++(seen[i].good ? out.means.chosen : out.means.rejected);
      continue;
    }
    const losses::Answer &a = seen[i].answer, &b = seen[i + 1].answer;
    const auto* dpo = std::get_if<losses::Dpo>(&loss);
    const losses::PairLoss found =
        dpo ? losses::dpo(*dpo, a, b) : losses::orpo(std::get<losses::Orpo>(loss), a, b);
    out.loss += found.loss / count;
    add_gradient(head, batch, seen[i], found.chosen_gradient / count, out);
    add_gradient(head, batch, seen[i + 1], found.rejected_gradient / count, out);
    out.means.chosen_reward += found.chosen_reward;
    out.means.rejected_reward += found.rejected_reward;
    out.means.chosen_logp += a.logp;
    out.means.rejected_logp += b.logp;
    out.means.correct += found.chosen_reward > found.rejected_reward;
    ++out.means.chosen;
    ++out.means.rejected;
  }
  return out;
}

void expect_near(double found, double expected) {
  EXPECT_NEAR(found, expected, 2e-5 * std::max(1.0, std::abs(expected)));
}

// Where the head is frozen the loss takes one pass over it.
Doubles gradient_of_frozen(const PreferenceLoss& loss, const std::vector<PackedRow>& rows,
                           const MicroBatch& batch, const Tensor& hidden) {
  const auto model = tiny_model(fast_model());
  EXPECT_FALSE(model->decoder.trains_head({}));
  const Preference objective(model->decoder, loss, 0, std::make_shared<OddReference>());
  PendingStep pending(rows, 1);
  Tape tape;
  const Var variable = tape.variable(hidden);
  tape.backward(objective.begin(rows, nullptr, collectives::alone())
                    ->of(tape, {variable, batch.targets, batch.documents}, pending));
  return values_of(variable.slot->grad());
}

TEST(Preference, LossGradientsAndMetricsAreThoseOfPlainLoops) {
  for (const PreferenceLoss& loss : all_losses()) {
    SCOPED_TRACE(loss.index());
    PreferenceBench bench(loss);
    const layers::Decoder& decoder = bench.model->decoder;
    const std::vector<PackedRow> rows = is_kto(loss) ? judged_rows() : pair_rows(true);
    const MicroBatch batch = gather(rows, 0, rows.size());
    Tape silent(false);
    const Tensor hidden = decoder.forward(silent, batch.input).value;
    const Parameter& weight = decoder.parameters().at("embedding.weight");
    const Head head{values_of(hidden), values_of(weight.value), decoder.config().hidden_size,
                    decoder.config().vocab_size};
    double kl = 0;
    if (is_kto(loss)) {
      const auto others = mismatched(rows, 64);
      const auto now = answer_logps(decoder, nullptr, others, 0);
      const auto before = OddReference().logps(others);
      for (size_t i = 0; i < now.size(); ++i)
        kl += (now[i].logp - before[i]) / static_cast<double>(now.size());
      kl = std::max(kl, 0.0);
    }
    const std::vector<double> reference =
        needs_reference(loss) ? OddReference().logps(rows) : std::vector<double>(100, 0.0);
    const Expected expected = expected_of(loss, head, batch, seen_answers(head, batch, reference), kl);

    PendingStep pending(rows, 1);
    bench.model->decoder.parameters().reset_gradients();
    Tape tape;
    const Var variable = tape.variable(hidden);
    tape.backward(bench.objective->begin(rows, nullptr, collectives::alone())
                      ->of(tape, {variable, batch.targets, batch.documents}, pending));
    EXPECT_TRUE(close(values_of(variable.slot->grad()), expected.dhidden, 2e-5));
    EXPECT_TRUE(close(values_of(weight.grad->grad()), expected.dweight, 2e-5));
    EXPECT_TRUE(decoder.trains_head({}));
    EXPECT_TRUE(close(gradient_of_frozen(loss, rows, batch, hidden), expected.dhidden, 2e-5));
    pending.set_grad_norm(Tensor::zeros({1}, DType::kF32));
    const StepResult step = pending.wait();
    const EvalResult judged = bench.objective->evaluate(rows, nullptr, collectives::alone());
    for (const auto& [found_loss, found] :
         {std::pair{step.loss, step.preference}, {judged.loss, judged.preference}}) {
      expect_near(found_loss, expected.loss);
      const PreferenceResult means = expected.means.mean();
      ASSERT_TRUE(found.has_value());
      expect_near(found->chosen_reward, means.chosen_reward);
      expect_near(found->rejected_reward, means.rejected_reward);
      expect_near(found->chosen_logp, means.chosen_logp);
      expect_near(found->rejected_logp, means.rejected_logp);
      expect_near(found->kl, kl);
      EXPECT_EQ(found->chosen, means.chosen);
      EXPECT_EQ(found->rejected, means.rejected);
      EXPECT_EQ(found->correct, means.correct);
      EXPECT_EQ(found->pairs, is_kto(loss) ? 0 : means.chosen);
    }
  }
}

}  // namespace
}  // namespace temper::training
