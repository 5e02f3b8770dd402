// A trainer asks its model for losses and knows nothing else of it: here one that reads a document as a whole
// and says one number.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "collectives/launch.h"
#include "layers/glue.h"
#include "primitives/primitives.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using collectives::Group;
using data::PackedRow;
using Rows = std::vector<PackedRow>;
using Words = std::vector<int32_t>;

constexpr int64_t kVocabulary = 6;
constexpr int kUpdates = 3;
constexpr double kLearningRate = 0.05, kMaxGradNorm = 0.3, kTolerance = 2e-6;

WeightTable table_of_words() {
  WeightTable table;
  table.add({"words", {kVocabulary, 1}, {"vocab", "hidden"}, {{"words", kVocabulary}}});
  return table;
}

// The mean over documents of (m - y)², where m is the mean of a document's words and y its source's number.
class WordMeans : public Model {
 public:
  WordMeans() : words_(table_of_words(), DType::kF32, {}) {
    const std::vector<float> first{0.3f, -0.2f, 0.1f, 0.5f, -0.4f, 0};
    words_.set_rows("words", 0, Tensor::from<float>(first, {kVocabulary, 1}));
  }
  layers::ParameterStore& parameters() override { return words_; }
  std::string why_not_captured() const override { return "the test runs on the CPU"; }
  std::vector<MicroBatch> cut(const Rows& rows, int64_t max_tokens) const override {
    std::vector<MicroBatch> batches;
    for (const auto& [begin, end] : cut_micro_batches(rows, max_tokens))
      batches.push_back(gather(rows, begin, end));
    return batches;
  }
  double training_flops(const MicroBatch& batch) const override { return static_cast<double>(batch.tokens); }
  void begin_step(const Rows&, PendingStep&) override {}
  void begin_passes(const StepData&) override {}
  Var loss(Tape& tape, StepData& data, size_t batch) override {
    const MicroBatch& rows = data.batches[batch];
    const Var words = primitives::gather_rows(tape, tape.leaf(words_[0]),
                                              primitives::ChosenRows(rows.input.ids, kVocabulary, true));
    std::vector<Var> losses;
    int64_t first = 0;
    for (const DocumentSpan& document : rows.documents) {
      const Var own = primitives::reshape(tape, primitives::narrow(tape, words, 0, first, document.length),
                                          {1, document.length});
      const Var mean =
          primitives::scale(tape, primitives::sum_last(tape, own), 1 / static_cast<float>(document.length));
      const Var error = primitives::add_scalar(tape, mean, -static_cast<float>(document.source));
      losses.push_back(primitives::reshape(
          tape, primitives::scale(tape, primitives::mul(tape, error, error), data.scale), {1}));
      first += document.length;
    }
    const Var all = layers::add_losses(tape, losses);
    data.outputs.push_back({all.value, {}, {}, {}, {}});
    return all;
  }
  void end_passes() override {}
  void after_update(StepData&) override {}
  void report(const StepData& done, PendingStep& pending) const override {
    for (size_t i = 0; i < done.outputs.size(); ++i)
      pending.add_loss(done.outputs[i].loss, {}, {}, done.batches[i].documents);
  }
  EvalResult evaluate(const Rows&) const override { return {}; }

 private:
  layers::ParameterStore words_;
};

PackedRow row_of(const std::vector<Words>& documents, const std::vector<int32_t>& sources) {
  PackedRow row;
  row.sources = sources;
  for (const Words& words : documents) {
    row.ids.insert(row.ids.end(), words.begin(), words.end());
    row.targets.resize(row.ids.size(), data::kIgnore);
    row.targets.back() = 0;  // what counts a document once
    row.document_lengths.push_back(std::ssize(words));
  }
  return row;
}

const Rows kDocuments{row_of({Words{0, 1, 1}, Words{4}}, {1, 0}), row_of({Words{5, 2}}, {2}),
                      row_of({Words{3, 3, 0, 1}, Words{2, 5, 4}}, {0, 1})};

// In double precision, with AdamW as ops/adamw has it.
class WordMeansInDouble {
 public:
  double update(int step) {
    std::array<double, kVocabulary> gradient{};
    double loss = 0;
    int count = 0;
    for (const PackedRow& row : kDocuments) count += static_cast<int>(row.document_lengths.size());
    for (const PackedRow& row : kDocuments) {
      auto word = row.ids.begin();
      for (size_t d = 0; d < row.document_lengths.size(); word += row.document_lengths[d++]) {
        const auto length = static_cast<double>(row.document_lengths[d]);
        double error = -row.sources[d];
        for (auto w = word; w != word + row.document_lengths[d]; ++w) error += words_[at(*w)] / length;
        loss += error * error / count;
        for (auto w = word; w != word + row.document_lengths[d]; ++w)
          gradient[at(*w)] += 2 * error / length / count;
      }
    }
    norm_ = 0;
    for (const double g : gradient) norm_ += g * g;
    norm_ = std::sqrt(norm_);
    const double clip = std::min(1.0, kMaxGradNorm / (norm_ + 1e-6));
    for (size_t i = 0; i < words_.size(); ++i) {
      const double g = clip * gradient[i];
      m_[i] = 0.9 * m_[i] + 0.1 * g;
      v_[i] = 0.999 * v_[i] + 0.001 * g * g;
      words_[i] -= kLearningRate * m_[i] / (1 - std::pow(0.9, step)) /
                   (std::sqrt(v_[i] / (1 - std::pow(0.999, step))) + 1e-8);
    }
    return loss;
  }
  double norm() const { return norm_; }
  const auto& words() const { return words_; }

 private:
  static size_t at(int32_t word) { return static_cast<size_t>(word); }
  std::array<double, kVocabulary> words_{0.3, -0.2, 0.1, 0.5, -0.4, 0}, m_{}, v_{};
  double norm_ = 0;
};

void expect_reference(int64_t micro_batch_tokens, Group& ranks) {
  const auto ops = tiny_model();  // whose optimizer's kernels are used
  auto words = std::make_unique<WordMeans>();
  WordMeans& model = *words;
  optimizers::AdamW optimizer(model.parameters(), ops->decoder.ops(), {});
  Trainer trainer(std::move(words), optimizer,
                  {.max_grad_norm = kMaxGradNorm, .micro_batch_tokens = micro_batch_tokens}, ranks);
  // The last of several ranks has all rows but the first.
  Rows rows = kDocuments;
  if (ranks.size() == 2) rows = ranks.rank() == 0 ? Rows{rows[0]} : Rows{rows[1], rows[2]};
  WordMeansInDouble reference;
  for (int step = 1; step <= kUpdates; ++step) {
    const double loss = reference.update(step);
    const StepResult result = trainer.step(rows, kLearningRate);
    EXPECT_NEAR(result.loss, loss, kTolerance);
    EXPECT_NEAR(result.grad_norm, reference.norm(), kTolerance);
    EXPECT_EQ(result.target_tokens, 5);
    const auto found = model.parameters()[0].value.values<float>();
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], reference.words()[i], kTolerance) << step;
  }
}

TEST(Model, OfAnyKindIsTrained) {
  for (const int64_t tokens : {0, 1, 6}) {
    SCOPED_TRACE(tokens);
    expect_reference(tokens, collectives::alone());
  }
}

TEST(Model, OfAnyKindIsTrainedBySeveralRanks) {
  collectives::launch("threads", {.ranks = 2, .deadline = 120},
                      [](Group& ranks) { expect_reference(6, ranks); });
}

}  // namespace
}  // namespace temper::training
