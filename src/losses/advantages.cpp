#include "losses/advantages.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "losses/spread.h"

namespace temper::losses {
namespace {

bool of_group(const AdvantageOptions& options) {
  return options.baseline == Baseline::kGroupMean || options.baseline == Baseline::kLeaveOneOut ||
         options.scale == AdvantageScale::kGroup;
}

bool of_batch(const AdvantageOptions& options) {
  return options.baseline == Baseline::kBatchMean || options.scale == AdvantageScale::kBatch ||
         options.scale == AdvantageScale::kBatchDifferences;
}

double difference(Baseline baseline, double reward, const Spread& group, const Spread& batch) {
  switch (baseline) {
    case Baseline::kGroupMean:
      return reward - group.mean;
    case Baseline::kLeaveOneOut: {
      const auto n = static_cast<double>(group.count);
      return (reward - group.mean) * n / (n - 1);  // reward - (n mean - reward) / (n - 1)
    }
    case Baseline::kBatchMean:
      return reward - batch.mean;
    case Baseline::kNone:
      return reward;
  }
  return reward;
}

double divisor(const AdvantageOptions& options, const Spread& group, const Spread& batch) {
  if (options.scale == AdvantageScale::kGroup) return group.deviation + options.eps;
  if (options.scale == AdvantageScale::kBatch) return batch.deviation + options.eps;
  return 1;
}

// Divides by the deviation of the differences of the answers that are not left out.
void scale_by_differences(std::span<const double> rewards, double eps, std::vector<double>& differences) {
  std::vector<double> counted = differences;
  for (size_t i = 0; i < rewards.size(); ++i)
    if (std::isnan(rewards[i])) counted[i] = rewards[i];
  const Spread spread = spread_of(counted);
  if (!spread.any) return;  // all are 0
  for (double& difference : differences) difference /= spread.deviation + eps;
}

void check(const AdvantageOptions& options, std::span<const double> rewards, int64_t per_group) {
  const auto answers = static_cast<int64_t>(rewards.size());
  if (per_group < 1 || answers % per_group != 0)
    fail(
        "[advantages] {} answers are not whole groups of {}; answers that are left out keep their places, "
        "with NaN",
        answers, per_group);
  if (per_group == 1 && of_group(options))
    fail(
        "[advantages] groups have 1 answer, which has nothing to be compared with and would train nothing; "
        "ask for at least 2 answers per prompt, or for the batch's baseline and scale");
  for (size_t i = 0; i < rewards.size(); ++i)
    if (std::isinf(rewards[i]))
      fail(
          "[advantages] the reward of answer {} is {}; rewards are finite, or NaN for answers that are left "
          "out",
          i, rewards[i]);
}

}  // namespace

Advantages advantages(const AdvantageOptions& options, std::span<const double> rewards, int64_t per_group) {
  check(options, rewards, per_group);
  Advantages out{std::vector<double>(rewards.size(), 0.0)};
  const Spread batch = spread_of(rewards);
  const bool flat_batch = of_batch(options) && !batch.any;
  const auto size = static_cast<size_t>(per_group);
  for (size_t first = 0; first < rewards.size(); first += size) {
    const std::span<const double> group = rewards.subspan(first, size);
    const Spread spread = spread_of(group);
    if (flat_batch || (of_group(options) && !spread.any)) {
      ++out.groups_without_spread;
      continue;
    }
    const double by = divisor(options, spread, batch);
    for (size_t i = 0; i < size; ++i)
      if (!std::isnan(group[i]))
        out.values[first + i] = difference(options.baseline, group[i], spread, batch) / by;
  }
  if (options.scale == AdvantageScale::kBatchDifferences)
    scale_by_differences(rewards, options.eps, out.values);
  return out;
}

}  // namespace temper::losses
