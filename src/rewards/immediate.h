#pragma once
#include <functional>
#include <memory>

#include "rewards/reward.h"

namespace temper::rewards {

// A reward that is computed as soon as an answer is submitted.
std::unique_ptr<Reward> immediate(std::function<Verdict(const Sample&)> judge);

}  // namespace temper::rewards
