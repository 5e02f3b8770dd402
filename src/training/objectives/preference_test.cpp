#include "training/objectives/preference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "models/adapter.h"
#include "training/adapter_trainer.h"
#include "training/objectives/preference_test_support.h"
#include "training/passes/flops.h"

namespace temper::training {
namespace {

using op_testing::close;

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
  const PreferenceResult found = *dpo.evaluate(pair_rows(true), nullptr, collectives::alone()).preference;
  EXPECT_GT(found.pairs, 0);
  EXPECT_EQ(found.undecided, found.pairs);
  EXPECT_EQ(found.correct, 0);
  EXPECT_EQ(found.accuracy(), 0.5);
  // Without a reference, rewards are the log-probabilities themselves.
  const Preference free(model->decoder, losses::Dpo{.reference_free = true}, 0, nullptr);
  EXPECT_EQ(free.evaluate(pair_rows(true), nullptr, collectives::alone()).preference->undecided, 0);
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
  EXPECT_NEAR(objective.evaluate(rows, nullptr, collectives::alone()).loss, std::log(2.0), 1e-9);
  EXPECT_LT(objective.evaluate(rows, adapter.get(), collectives::alone()).loss, last.loss);
}

TEST(Preference, EveryLossLearnsItsAnswers) {
  for (const PreferenceLoss& loss : all_losses()) {
    SCOPED_TRACE(loss.index());
    const std::vector<PackedRow> rows = is_kto(loss) ? judged_rows() : pair_rows(true);
    PreferenceBench bench(loss);
    const EvalResult before = bench.objective->evaluate(rows, nullptr, collectives::alone());
    for (int step = 0; step < 20; ++step) bench.trainer.step(rows, 1e-2);
    const EvalResult after = bench.objective->evaluate(rows, nullptr, collectives::alone());
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
  EXPECT_DOUBLE_EQ(forward_flops(config, pair),
                   layers::forward_flops(config, whole) - layers::forward_flops(config, again));
}

}  // namespace
}  // namespace temper::training
