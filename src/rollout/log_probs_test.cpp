#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "rollout/engine.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

// Collects the logits that each token of an answer was chosen from.
struct Predictions : EngineObserver {
  void passed(std::span<const Tokens>, const std::vector<Tensor>&, const Tensor&) override {}
  void predicted(std::span<const Tokens> rows, const Tensor& logits) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = logits.values<float>().subspan(i * static_cast<size_t>(logits.dim(1)),
                                                      static_cast<size_t>(logits.dim(1)));
      of[rows[i].id].emplace_back(row.begin(), row.end());
    }
  }
  std::map<int64_t, std::vector<std::vector<double>>> of;
};

// log(sum(exp(x / t))) of the `most` largest.
double log_sum(std::vector<double> logits, double temperature, size_t most) {
  std::sort(logits.begin(), logits.end(), std::greater<>());
  double sum = 0;
  for (size_t i = 0; i < std::min(most, logits.size()); ++i) sum += std::exp(logits[i] / temperature);
  return std::log(sum);
}

// Log-probabilities are of the whole vocabulary; less what was kept they are of the tokens that stayed.
TEST(Engine, LogProbabilitiesOfBothDistributions) {
  const auto model = tiny_model();
  Predictions predictions;
  Engine engine(model->decoder, {.observer = &predictions});
  constexpr double kTemperature = 0.7;
  for (uint64_t i = 0; i < 6; ++i) {
    Request request{{1, 2, static_cast<int32_t>(i)}};
    request.sampling = {.temperature = kTemperature, .seed = i};
    request.max_new_tokens = 12;
    request.sampling.top_k = i % 2 == 0 ? 3 : 0;
    request.log_prob_temperature = kTemperature;
    engine.add(request);
  }
  while (engine.step()) continue;
  for (const Completion& answer : engine.take_finished()) {
    const int64_t id = answer.id;
    ASSERT_EQ(answer.columns.kept.size(), answer.ids.size());
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      const std::vector<double>& logits = predictions.of[id].at(i);
      const size_t most = id % 2 == 0 ? 3 : logits.size();
      const double own = logits.at(static_cast<size_t>(answer.ids[i])) / kTemperature;
      EXPECT_NEAR(answer.columns.rollout_log_probs[i], own - log_sum(logits, kTemperature, logits.size()),
                  1e-6);
      EXPECT_NEAR(answer.columns.rollout_log_probs[i] - answer.columns.kept[i],
                  own - log_sum(logits, kTemperature, most), 2e-6);
      EXPECT_TRUE(id % 2 == 0 ? answer.columns.kept[i] < 0 : answer.columns.kept[i] == 0);
    }
  }
}

}  // namespace
}  // namespace temper::rollout
