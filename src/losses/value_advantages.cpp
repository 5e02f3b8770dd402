#include "losses/value_advantages.h"

#include <cmath>
#include <limits>

#include "losses/spread.h"

namespace temper::losses {
namespace {

double explained_variance(std::span<const double> returns, std::span<const double> errors) {
  const Spread of_returns = spread_of(returns), of_errors = spread_of(errors);
  if (!of_returns.any) return 0;
  const double ratio = of_errors.deviation / of_returns.deviation;
  return 1 - ratio * ratio;
}

}  // namespace

ValueAdvantages value_advantages(const ValueAdvantagesOptions& options, std::span<const ValuedAnswer> batch) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  ValueAdvantages all;
  for (const ValuedAnswer& answer : batch) {
    const size_t first = all.advantages.size(), tokens = answer.old.size();
    all.advantages.resize(first + tokens, kNone);
    all.returns.resize(first + tokens, kNone);
    if (std::isnan(answer.reward)) continue;
    gae(options.gae, token_rewards(answer.reward, options.kl, answer.old, answer.reference), answer.values,
        answer.after, std::span(all.advantages).subspan(first), std::span(all.returns).subspan(first));
  }
  all.explained_variance = explained_variance(all.returns, all.advantages);  // returns - values
  normalize(options.eps, all.advantages);
  for (double& value : all.returns)
    if (std::isnan(value)) value = 0;
  return all;
}

}  // namespace temper::losses
