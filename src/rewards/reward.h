#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "rewards/reward_config.h"

// What answers are worth.
namespace temper::rewards {

// An answer that is judged.
struct Sample {
  std::string place;       // "prompts.jsonl:12, sample 3", for messages
  const Json* row;         // an object, as the data file has it
  std::string text;        // the answer, without its stop token
  int64_t tokens = 0;      // of the answer
  bool truncated = false;  // it ended by its length
  Json messages = {};      // an array, when the prompt was a conversation: it and the answer; else null
};

// What was found of it.
struct Verdict {
  double reward = 0;       // finite; counts for nothing when there is an error
  std::string error = {};  // not empty: the answer could not be judged, and why
  Json next = {};          // an array of messages with which an environment continues; null: it is over
};

// Advantages are made of sums and squares of rewards, and gradients of these, in float32: none of them
// overflows up to here. Why a sum of rewards cannot be used in training; empty: it can.
constexpr double kLargestReward = 1e30;
std::string problem_of_reward(double reward);

constexpr double kForEver = std::numeric_limits<double>::infinity();  // seconds

// Judges answers; programs and servers do so while the caller does other work. Calls come from one thread.
class Reward {
 public:
  virtual ~Reward() = default;
  // `id` is of no answer that is still awaited; what `sample.row` points to is read before this returns.
  virtual void submit(int64_t id, const Sample& sample) = 0;
  // The verdicts that are there. If there is none, but some are awaited, waits for one, at most `seconds`.
  // In any order. An Error where no more answers can be judged.
  virtual std::vector<std::pair<int64_t, Verdict>> take(double seconds) = 0;
};

// `key` ("grpo.rewards[0]") begins the messages.
std::unique_ptr<Reward> make_reward(const RewardConfig& config, const std::string& key);

}  // namespace temper::rewards
