#include "losses/orpo.h"

#include <algorithm>

#include "losses/log_sigmoid.h"

namespace temper::losses {
namespace {

struct Odds {
  double mean;   // log p, per token
  double log;    // of the odds
  double slope;  // of `log` by `mean`: 1 / (1 - p)
};

// A certain answer has no finite odds: p stays this far from 1.
constexpr double kNearest = 1e-12;

Odds odds_of(const Answer& answer) {
  const double mean = std::min(answer.logp / static_cast<double>(answer.tokens), -kNearest);
  const double rest = -std::expm1(mean);  // 1 - p
  return {mean, mean - std::log(rest), 1 / rest};
}

}  // namespace

PairLoss orpo(const Orpo& options, const Answer& chosen, const Answer& rejected) {
  const Odds better = odds_of(chosen), worse = odds_of(rejected);
  const double ratio = better.log - worse.log, pull = options.lambda * sigmoid(-ratio);
  PairLoss out;
  out.loss = -better.mean - options.lambda * log_sigmoid(ratio);
  out.chosen_gradient = -(1 + pull * better.slope) / static_cast<double>(chosen.tokens);
  out.rejected_gradient = pull * worse.slope / static_cast<double>(rejected.tokens);
  out.chosen_reward = options.lambda * better.mean;
  out.rejected_reward = options.lambda * worse.mean;
  return out;
}

}  // namespace temper::losses
