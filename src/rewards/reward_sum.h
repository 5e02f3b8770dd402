#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rewards/reward.h"

namespace temper::rewards {

// The weighted sum of several rewards. It has an error where one of them has; at most one may continue with
// messages, which then are the sum's.
class RewardSum {
 public:
  struct Judged {
    Verdict verdict;
    std::vector<double> parts = {};  // each reward without its weight, as names(); empty after an error
  };

  // `key` ("grpo.rewards") begins the messages. The configurations have passed check().
  RewardSum(const std::vector<RewardConfig>& configs, const std::string& key);

  // As those of Reward.
  void submit(int64_t id, const Sample& sample);
  std::vector<std::pair<int64_t, Judged>> take(double seconds);

  const std::vector<std::string>& names() const { return names_; }

 private:
  struct Awaited {
    std::vector<Verdict> parts;
    size_t missing = 0;
  };
  void collect(size_t part, double seconds);
  Judged sum_of(const std::vector<Verdict>& parts) const;

  std::vector<std::unique_ptr<Reward>> rewards_;
  std::vector<double> weights_;
  std::vector<std::string> names_;
  std::vector<int64_t> missing_;  // of each reward: verdicts that it still owes
  std::map<int64_t, Awaited> awaited_;
  std::vector<std::pair<int64_t, Judged>> done_;
};

}  // namespace temper::rewards
