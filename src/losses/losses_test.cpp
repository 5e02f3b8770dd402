#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "losses/dpo.h"
#include "losses/kto.h"
#include "losses/orpo.h"

// Each loss against its published formula, written with exp and log alone, and its gradients against central
// differences of that.
namespace temper::losses {
namespace {

const std::vector<Answer> kAnswers{{-12.5, -11, 5}, {-3, -8.25, 2}, {-40, -39.5, 17}, {-0.7, -0.2, 1}};

double log_sigmoid_of(double x) { return std::log(1 / (1 + std::exp(-x))); }

using Formula = std::function<double(const Answer& chosen, const Answer& rejected)>;

double slope_of(const Formula& formula, Answer chosen, Answer rejected, bool by_chosen) {
  const double step = 1e-5;
  double& logp = by_chosen ? chosen.logp : rejected.logp;
  const double at = logp;
  logp = at + step;
  const double above = formula(chosen, rejected);
  logp = at - step;
  return (above - formula(chosen, rejected)) / (2 * step);
}

void expect_agreement(const std::function<PairLoss(const Answer&, const Answer&)>& loss,
                      const Formula& formula) {
  for (const Answer& chosen : kAnswers)
    for (const Answer& rejected : kAnswers) {
      const PairLoss found = loss(chosen, rejected);
      const double expected = formula(chosen, rejected);
      EXPECT_NEAR(found.loss, expected, 1e-12 * std::max(1.0, std::abs(expected)));
      for (const bool by_chosen : {true, false}) {
        const double slope = slope_of(formula, chosen, rejected, by_chosen);
        EXPECT_NEAR(by_chosen ? found.chosen_gradient : found.rejected_gradient, slope,
                    1e-7 * std::max(1.0, std::abs(slope)));
      }
    }
}

double ratio(const Dpo& options, const Answer& answer) {
  const double sum = options.reference_free ? answer.logp : answer.logp - answer.reference_logp;
  return options.length_normalized ? sum / static_cast<double>(answer.tokens) : sum;
}

std::vector<Dpo> variants(Dpo::Form form) {
  std::vector<Dpo> all;
  for (const double beta : {0.1, 0.7})
    for (const bool normalized : {false, true})
      for (const bool free : {false, true})
        all.push_back({.form = form, .beta = beta, .length_normalized = normalized, .reference_free = free});
  return all;
}

TEST(Dpo, IsTheLogOddsOfTheChosenAnswer) {
  for (Dpo options : variants(Dpo::Form::kSigmoid))
    for (const double noise : {0.0, 0.2})
      for (const double margin : {0.0, 0.5}) {
        options.label_smoothing = noise;
        options.margin = margin;
        const Formula formula = [options](const Answer& chosen, const Answer& rejected) {
          const double x =
              options.beta * (ratio(options, chosen) - ratio(options, rejected)) - options.margin;
          return -(1 - options.label_smoothing) * log_sigmoid_of(x) -
                 options.label_smoothing * log_sigmoid_of(-x);
        };
        expect_agreement([&](const Answer& a, const Answer& b) { return dpo(options, a, b); }, formula);
      }
}

TEST(Dpo, IpoRegressesToAMargin) {
  for (const Dpo& options : variants(Dpo::Form::kIpo)) {
    const Formula formula = [options](const Answer& chosen, const Answer& rejected) {
      return std::pow(ratio(options, chosen) - ratio(options, rejected) - 0.5 / options.beta, 2);
    };
    expect_agreement([&](const Answer& a, const Answer& b) { return dpo(options, a, b); }, formula);
  }
}

TEST(Dpo, RewardsAreWhatTheModelGainedOnTheReference) {
  const PairLoss found = dpo({.beta = 0.5}, kAnswers[0], kAnswers[1]);
  EXPECT_DOUBLE_EQ(found.chosen_reward, 0.5 * -1.5);
  EXPECT_DOUBLE_EQ(found.rejected_reward, 0.5 * 5.25);
}

TEST(Dpo, HugeDifferencesStayFinite) {
  const Answer far{-5000, 0, 10}, near{0, -5000, 10};
  EXPECT_DOUBLE_EQ(dpo({.beta = 1}, far, near).loss, 10000);
  EXPECT_DOUBLE_EQ(dpo({.beta = 1}, far, near).chosen_gradient, -1);
  EXPECT_EQ(dpo({.beta = 1}, near, far).loss, 0);
  EXPECT_EQ(dpo({.beta = 1}, near, far).chosen_gradient, 0);
}

TEST(Orpo, LearnsAndPrefersTheChosenAnswer) {
  for (const double lambda : {0.1, 1.0}) {
    const Formula formula = [lambda](const Answer& chosen, const Answer& rejected) {
      const auto p = [](const Answer& answer) {
        return std::exp(answer.logp / static_cast<double>(answer.tokens));
      };
      const double odds = p(chosen) / (1 - p(chosen)), other = p(rejected) / (1 - p(rejected));
      return -std::log(p(chosen)) - lambda * log_sigmoid_of(std::log(odds / other));
    };
    expect_agreement([&](const Answer& a, const Answer& b) { return orpo({lambda}, a, b); }, formula);
  }
  EXPECT_DOUBLE_EQ(orpo({0.1}, kAnswers[0], kAnswers[1]).chosen_reward, 0.1 * -2.5);
  EXPECT_DOUBLE_EQ(orpo({0.1}, kAnswers[0], kAnswers[1]).rejected_reward, 0.1 * -1.5);
}

TEST(Orpo, CertainAnswersStayFinite) {
  const PairLoss found = orpo({0.1}, {0, 0, 4}, {-1e-300, 0, 4});
  EXPECT_TRUE(std::isfinite(found.loss) && std::isfinite(found.chosen_gradient));
  EXPECT_TRUE(std::isfinite(found.rejected_gradient));
}

TEST(Kto, GoodAnswersGainAndBadOnesLose) {
  for (const Answer& answer : kAnswers)
    for (const bool good : {true, false})
      for (const double z0 : {0.0, 1.25}) {
        const Kto options{.beta = 0.3, .desirable_weight = 1.5, .undesirable_weight = 0.75};
        const Formula formula = [&](const Answer& a, const Answer&) {
          const double r = a.logp - a.reference_logp, x = options.beta * (good ? r - z0 : z0 - r);
          return (good ? 1.5 : 0.75) * (1 - 1 / (1 + std::exp(-x)));
        };
        const AnswerLoss found = kto(options, answer, good, z0);
        EXPECT_NEAR(found.loss, formula(answer, answer), 1e-12);
        EXPECT_NEAR(found.gradient, slope_of(formula, answer, answer, true), 1e-8);
        EXPECT_DOUBLE_EQ(found.reward, 0.3 * (answer.logp - answer.reference_logp));
        EXPECT_EQ(found.gradient < 0, good);
      }
}

}  // namespace
}  // namespace temper::losses
