#include "rollout/scheduling/state_slots.h"

#include <algorithm>

#include "base/error.h"

namespace temper::rollout {

StateSlots::StateSlots(int64_t running) : running_(running) { forget(); }

int32_t StateSlots::take() {
  invariant(!free_.empty(), "more sequences run than there are slots");
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateSlots::give_back(int32_t slot) { free_.push_back(slot); }

std::optional<int32_t> StateSlots::find(uint64_t serial) const {
  for (const auto& [kept, slot] : kept_)
    if (kept == serial) return slot;
  return {};
}

std::optional<int32_t> StateSlots::keep(uint64_t serial) {
  if (find(serial)) return {};
  auto slot = static_cast<int32_t>(running_);
  if (std::ssize(kept_) == copies_for(running_)) {
    slot = kept_.front().second;
    kept_.pop_front();
  }
  const auto taken = [&](int32_t each) {
    return std::any_of(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept.second == each; });
  };
  while (taken(slot)) ++slot;
  kept_.emplace_back(serial, slot);
  return slot;
}

void StateSlots::drop_unless(const std::function<bool(uint64_t)>& held) {
  kept_.remove_if([&](const auto& kept) { return !held(kept.first); });
}

void StateSlots::forget() {
  kept_.clear();
  free_.clear();
  for (int64_t slot = running_; slot > 0;) free_.push_back(static_cast<int32_t>(--slot));
}

}  // namespace temper::rollout
