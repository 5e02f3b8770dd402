#include "training/preference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "models/adapter.h"
#include "tests/support/answer_rows.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"
#include "training/flops.h"

namespace temper::training {
namespace {

using data::PackedRow;
using op_testing::close;
using op_testing::Doubles;
using op_testing::values_of;

std::vector<PackedRow> pair_rows(bool share) {
  return {answer_row(1, {test_pair(9, 4, 6), test_pair(1, 3, 2)}, share),
          answer_row(2, {test_pair(14, 5, 3)}, share),
          answer_row(3, {test_pair(2, 7, 1), test_pair(6, 2, 9)}, share)};
}

std::vector<PackedRow> judged_rows() {
  return {answer_row(4, {{5, {{4, true}}}, {3, {{6, false}}}}, true), answer_row(5, {{8, {{3, true}}}}, true),
          answer_row(6, {test_pair(4, 5, 2)}, true)};
}

// Says something else of every answer, and of mismatched ones too.
class OddReference : public Reference {
 public:
  std::vector<double> logps(const std::vector<PackedRow>& rows) const override {
    std::vector<double> all;
    for (const PackedRow& row : rows)
      for (const auto& answers : row.answers)
        for (const data::Answer& answer : answers)
          all.push_back(-3.0 * static_cast<double>(answer.length) - static_cast<double>(row.ids[0]) / 16);
    return all;
  }
  double flops(std::span<const DocumentSpan>) const override { return 0; }
};

std::vector<PreferenceLoss> all_losses() {
  return {losses::Dpo{},
          losses::Dpo{.beta = 0.3, .label_smoothing = 0.2},
          losses::Dpo{.beta = 2, .margin = 0.5, .length_normalized = true, .reference_free = true},
          losses::Dpo{.form = losses::Dpo::Form::kIpo, .length_normalized = true},
          losses::Orpo{.lambda = 0.4},
          losses::Kto{.beta = 0.2, .good_weight = 1.3}};
}

bool is_kto(const PreferenceLoss& loss) { return std::holds_alternative<losses::Kto>(loss); }

TinyModel fast_model(const char* type = "qwen3") {
  TinyModel tiny{.type = type};
  tiny.ops = {};
  return tiny;
}

struct PreferenceBench {
  explicit PreferenceBench(const PreferenceLoss& loss, const TrainerOptions& options = {},
                           const TinyModel& tiny = fast_model())
      : model(tiny_model(tiny)),
        objective(std::make_shared<Preference>(model->decoder, loss, options.micro_batch_tokens,
                                               std::make_shared<OddReference>())),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, options, objective) {}
  Doubles gradients() const {
    Doubles all;
    for (size_t i = 0; i < model->decoder.parameters().size(); ++i)
      for (const double value : values_of(model->decoder.parameters()[i].grad->grad())) all.push_back(value);
    return all;
  }
  std::unique_ptr<models::Model> model;
  std::shared_ptr<Preference> objective;
  optimizers::AdamW optimizer;
  Trainer trainer;
};

TEST(Preference, ASharedPromptIsAsGoodAsTwo) {
  for (const char* type : {"qwen3", "llama"})
    for (const ops::OpsConfig& ops : {ops::all_eager(), ops::OpsConfig()}) {
      TinyModel tiny = fast_model(type);
      tiny.ops = ops;
      PreferenceBench once(losses::Dpo{}, {}, tiny), twice(losses::Dpo{}, {}, tiny);
      const auto apart = answer_logps(twice.model->decoder, nullptr, pair_rows(false), 0);
      const auto shared = answer_logps(once.model->decoder, nullptr, pair_rows(true), 0);
      ASSERT_EQ(shared.size(), 10u);
      for (size_t i = 0; i < shared.size(); ++i) {
        EXPECT_EQ(shared[i].tokens, apart[i].tokens);
        EXPECT_NEAR(shared[i].logp, apart[i].logp, 1e-5 * std::abs(apart[i].logp));
      }
      const StepResult a = once.trainer.step(pair_rows(true), 0), b = twice.trainer.step(pair_rows(false), 0);
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * b.grad_norm);
      EXPECT_TRUE(close(once.gradients(), twice.gradients(), 1e-5));
      EXPECT_LT(a.tokens, b.tokens);
      EXPECT_LT(a.flops, b.flops);
    }
}

TEST(Preference, CheckpointingChangesNoBits) {
  PreferenceBench kept(losses::Dpo{}), selective(losses::Dpo{}, {.checkpointing = Checkpointing::kSelective}),
      full(losses::Dpo{}, {.checkpointing = Checkpointing::kFull});
  const StepResult expected = kept.trainer.step(pair_rows(true), 1e-2);
  for (PreferenceBench* other : {&selective, &full}) {
    EXPECT_EQ(other->trainer.step(pair_rows(true), 1e-2).loss, expected.loss);
    EXPECT_EQ(other->gradients(), kept.gradients());
  }
}

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
  tape.backward(
      objective.begin(rows, nullptr)->of(tape, {variable, batch.targets, batch.documents}, pending));
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
    tape.backward(
        bench.objective->begin(rows, nullptr)->of(tape, {variable, batch.targets, batch.documents}, pending));
    EXPECT_TRUE(close(values_of(variable.slot->grad()), expected.dhidden, 2e-5));
    EXPECT_TRUE(close(values_of(weight.grad->grad()), expected.dweight, 2e-5));
    EXPECT_TRUE(decoder.trains_head({}));
    EXPECT_TRUE(close(gradient_of_frozen(loss, rows, batch, hidden), expected.dhidden, 2e-5));
    pending.set_grad_norm(Tensor::zeros({1}, DType::kF32));
    const StepResult step = pending.wait();
    const EvalResult judged = bench.objective->evaluate(rows, nullptr);
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

// What a stored reference has: the same model's sums in another order.
class NearlyTheModel : public Reference {
 public:
  explicit NearlyTheModel(const layers::Decoder& model) : model_(model, 0) {}
  std::vector<double> logps(const std::vector<PackedRow>& rows) const override {
    std::vector<double> found = model_.logps(rows);
    for (size_t i = 0; i < found.size(); ++i) found[i] *= i % 3 == 0 ? 1 + 1e-6 : 1 - 1e-6;
    return found;
  }
  double flops(std::span<const DocumentSpan> documents) const override { return model_.flops(documents); }

 private:
  ModelReference model_;
};

TEST(Preference, RewardsThatAreRoundingAloneDecideNothing) {
  const auto model = tiny_model(fast_model());
  const auto reference = std::make_shared<NearlyTheModel>(model->decoder);
  const Preference dpo(model->decoder, losses::Dpo{}, 0, reference);
  const PreferenceResult found = *dpo.evaluate(pair_rows(true), nullptr).preference;
  EXPECT_GT(found.pairs, 0);
  EXPECT_EQ(found.undecided, found.pairs);
  EXPECT_EQ(found.correct, 0);
  EXPECT_EQ(found.accuracy(), 0.5);
  // Without a reference, rewards are the log-probabilities themselves.
  const Preference free(model->decoder, losses::Dpo{.reference_free = true}, 0, nullptr);
  EXPECT_EQ(free.evaluate(pair_rows(true), nullptr).preference->undecided, 0);
}

TEST(Preference, TheMicroBatchSplitDoesNotChangeTheStep) {
  for (const PreferenceLoss& loss : all_losses()) {
    const std::vector<PackedRow> rows = is_kto(loss) ? judged_rows() : pair_rows(true);
    PreferenceBench whole(loss);
    const StepResult expected = whole.trainer.step(rows, 1e-3);
    EXPECT_GT(expected.grad_norm, 1e-3);
    for (const int64_t tokens : {1, 40}) {
      PreferenceBench cut(loss, {.micro_batch_tokens = tokens});
      const StepResult found = cut.trainer.step(rows, 1e-3);
      EXPECT_NEAR(found.loss, expected.loss, 1e-5 * std::abs(expected.loss));
      EXPECT_NEAR(found.grad_norm, expected.grad_norm, 1e-4 * expected.grad_norm);
      EXPECT_NEAR(found.preference->chosen_reward, expected.preference->chosen_reward, 1e-4);
    }
  }
}

// The base with its adapter switched off: before the first update there is nothing to tell them apart.
TEST(Preference, AnAdapterIsComparedWithItsBase) {
  const auto model = tiny_model(fast_model());
  LoraConfig config{.rank = 4, .alpha = 8};
  config.targets = {.names = {"q_proj", "v_proj", "down_proj"}};
  const auto adapter = models::new_adapter(*model, config, 3, "");
  optimizers::AdamW optimizer(adapter->parameters(), model->decoder.ops(), {});
  const auto base = std::make_shared<ModelReference>(model->decoder, 0);
  const Preference objective(model->decoder, losses::Dpo{}, 0, base);
  AdapterTrainer trainer(model->decoder, {});
  const std::vector<PackedRow> rows = pair_rows(true);
  const std::vector<double> before = base->logps(rows);
  StepResult first, last;
  for (int step = 0; step < 30; ++step) {
    AdapterShare share{adapter.get(), &optimizer, &rows, 1e-2};
    share.objective = &objective;
    last = trainer.begin({share}).front().wait();
    if (step == 0) first = last;
  }
  EXPECT_NEAR(first.loss, std::log(2.0), 1e-6);
  EXPECT_NEAR(first.preference->chosen_reward, 0, 1e-5);
  EXPECT_EQ(first.preference->accuracy(), 0.5);
  EXPECT_LT(last.loss, first.loss / 2);
  EXPECT_EQ(last.preference->correct, 5);
  EXPECT_EQ(last.preference->accuracy(), 1);
  EXPECT_GT(last.preference->chosen_reward, last.preference->rejected_reward + 0.5);
  EXPECT_EQ(base->logps(rows), before);
  EXPECT_NEAR(objective.evaluate(rows, nullptr).loss, std::log(2.0), 1e-9);
  EXPECT_LT(objective.evaluate(rows, adapter.get()).loss, last.loss);
}

TEST(Preference, EveryLossLearnsItsAnswers) {
  for (const PreferenceLoss& loss : all_losses()) {
    SCOPED_TRACE(loss.index());
    const std::vector<PackedRow> rows = is_kto(loss) ? judged_rows() : pair_rows(true);
    PreferenceBench bench(loss);
    const EvalResult before = bench.objective->evaluate(rows, nullptr);
    for (int step = 0; step < 20; ++step) bench.trainer.step(rows, 1e-2);
    const EvalResult after = bench.objective->evaluate(rows, nullptr);
    EXPECT_LT(after.loss, before.loss);
    EXPECT_GT(after.preference->chosen_reward - after.preference->rejected_reward,
              before.preference->chosen_reward - before.preference->rejected_reward);
  }
}

TEST(Preference, KtoAsksForAnswersToOtherPrompts) {
  const std::vector<PackedRow> rows = judged_rows();
  const std::vector<PackedRow> others = mismatched(rows, 64);
  ASSERT_EQ(others.size(), 5u);  // one for each answer
  // The first prompt of 5 tokens with the second answer of 6.
  EXPECT_EQ(others[0].size(), 11);
  EXPECT_EQ(others[0].num_targets(), 6);
  EXPECT_TRUE(std::equal(others[0].ids.begin(), others[0].ids.begin() + 5, rows[0].ids.begin()));
  const auto second = rows[0].ids.begin() + rows[0].document_lengths[0];
  EXPECT_TRUE(std::equal(others[0].ids.begin() + 5, others[0].ids.end(), second + 3));
  // The pair's prompt stands apart from its answers and is put together again; both get the first answer.
  EXPECT_EQ(others[3].ids, others[4].ids);
  EXPECT_TRUE(std::equal(others[4].ids.begin(), others[4].ids.begin() + 4, rows[2].ids.begin()));
  EXPECT_TRUE(std::equal(others[4].ids.begin() + 4, others[4].ids.end(), rows[0].ids.begin() + 5));
  for (const PackedRow& row : mismatched(rows, 6)) EXPECT_LE(row.size(), 6);
  for (const std::vector<PackedRow>& same : {std::vector{rows[1]}, {rows[1], rows[1]}})
    op_testing::expect_error(
        [&] { mismatched(same, 64); },
        "KTO compares with answers to other prompts, but the rows of this update have 1 prompt; set "
        "data.shuffle or raise rows_per_step");
  // An answer to the same prompt is passed over.
  EXPECT_EQ(mismatched({rows[1], rows[1], rows[2]}, 64)[0].ids, mismatched({rows[1], rows[2]}, 64)[0].ids);
}

TEST(Flops, SharedBeginningsCountOnce) {
  const layers::DecoderConfig config = tiny_model()->decoder.config();
  const std::vector<DocumentSpan> pair{{20, 0, 0, {{6, true}, {4, false}}}};
  const std::vector<int32_t> whole{16, 14}, again{10};
  EXPECT_DOUBLE_EQ(forward_flops(config, pair), forward_flops(config, whole) - forward_flops(config, again));
}

}  // namespace
}  // namespace temper::training
