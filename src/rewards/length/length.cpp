// Answers of the right length. With max_length L and buffer B, the soft overlong punishment of Yu et al.,
// "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025, equation 13, of n tokens:
//   0 for n <= L - B,   ((L - B) - n) / B up to L,   -1 above
// With a target T: -min(1, |n - T| / T).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parts/registry.h"
#include "rewards/immediate.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

void check_length(const RewardConfig& config, const std::string& key) {
  if (config.length.target && (config.length.max_length || config.length.buffer))
    fail("[{}] has a target and {}; keep the target, or max_length and buffer", key,
         config.length.max_length ? "max_length" : "buffer");
  if (config.length.target) return;
  if (!config.length.max_length || !config.length.buffer)
    fail("[{}] needs max_length and buffer, or a target", key);
  if (*config.length.buffer > *config.length.max_length)
    fail("[{}.buffer] is {}, more than max_length, {}", key, *config.length.buffer,
         *config.length.max_length);
}

double punishment(double tokens, double length, double buffer) {
  return std::clamp((length - buffer - tokens) / buffer, -1.0, 0.0);
}

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string&) {
  const auto target = static_cast<double>(config.length.target.value_or(0));
  const auto length = static_cast<double>(config.length.max_length.value_or(0));
  const auto buffer = static_cast<double>(config.length.buffer.value_or(0));
  return immediate([=](const Sample& sample) -> Verdict {
    const auto tokens = static_cast<double>(sample.tokens);
    if (target > 0) return {.reward = -std::min(1.0, std::abs(tokens - target) / target)};
    return {.reward = punishment(tokens, length, buffer)};
  });
}

}  // namespace

void register_length() {
  registry<Room>().add("length", {{"max_length", "buffer", "target"}, check_length, make});
}

}  // namespace temper::rewards
