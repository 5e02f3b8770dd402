#include "rewards/reward_sum.h"

#include <cmath>

#include "base/clock.h"
#include "base/error.h"

namespace temper::rewards {

std::string problem_of_reward(double reward) {
  if (std::abs(reward) <= kLargestReward) return "";
  return fmt::format("{} is too large to learn from; expected at most {} in magnitude", reward,
                     kLargestReward);
}

RewardSum::RewardSum(const std::vector<RewardConfig>& configs, const std::string& key)
    : missing_(configs.size()) {
  for (size_t i = 0; i < configs.size(); ++i) {
    rewards_.push_back(make_reward(configs[i], fmt::format("{}[{}]", key, i)));
    weights_.push_back(configs[i].weight);
    names_.push_back(configs[i].metric_name());
  }
}

void RewardSum::submit(int64_t id, const Sample& sample) {
  invariant(!rewards_.empty(), "a sum of no rewards judges nothing");
  const bool is_new =
      awaited_.emplace(id, Awaited{std::vector<Verdict>(rewards_.size()), rewards_.size()}).second;
  invariant(is_new, fmt::format("answer {} is judged already", id));
  for (size_t part = 0; part < rewards_.size(); ++part) {
    rewards_[part]->submit(id, sample);
    ++missing_[part];
  }
}

std::vector<std::pair<int64_t, RewardSum::Judged>> RewardSum::take(double seconds) {
  for (size_t part = 0; part < rewards_.size(); ++part) collect(part, 0);
  // Whichever reward is waited for: the answers that come first are also those that were sent first.
  const double end = seconds_now() + seconds;
  for (size_t part = 0; done_.empty() && part < rewards_.size();) {
    const double left = end - seconds_now();
    if (left <= 0) break;
    if (missing_[part] == 0)
      ++part;
    else
      collect(part, left);
  }
  return std::exchange(done_, {});
}

void RewardSum::collect(size_t part, double seconds) {
  if (missing_[part] == 0) return;
  for (auto& [id, verdict] : rewards_[part]->take(seconds)) {
    const auto found = awaited_.find(id);
    invariant(found != awaited_.end(), fmt::format("a verdict on answer {}, which is not awaited", id));
    --missing_[part];
    Awaited& awaited = found->second;
    awaited.parts[part] = std::move(verdict);
    if (--awaited.missing > 0) continue;
    done_.emplace_back(id, sum_of(awaited.parts));
    awaited_.erase(found);
  }
}

RewardSum::Judged RewardSum::sum_of(const std::vector<Verdict>& parts) const {
  Judged out;
  const std::string* continues = nullptr;
  for (size_t part = 0; part < parts.size(); ++part) {
    const Verdict& verdict = parts[part];
    if (!verdict.error.empty())
      return {.verdict = {.error = fmt::format("reward {}: {}", names_[part], verdict.error)}};
    if (const std::string problem = problem_of_reward(verdict.reward); !problem.empty())
      return {.verdict = {.error = fmt::format("reward {}: {}", names_[part], problem)}};
    out.parts.push_back(verdict.reward);
    out.verdict.reward += weights_[part] * verdict.reward;
    if (verdict.next.is_null()) continue;
    if (continues != nullptr)
      return {.verdict = {.error = fmt::format("rewards {} and {} both continue the conversation; one may",
                                               *continues, names_[part])}};
    continues = &names_[part];
    out.verdict.next = verdict.next;
  }
  if (const std::string problem = problem_of_reward(out.verdict.reward); !problem.empty())
    return {.verdict = {.error = "the sum of the rewards: " + problem}};
  return out;
}

}  // namespace temper::rewards
