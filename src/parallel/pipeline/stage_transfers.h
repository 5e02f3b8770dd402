#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "collectives/pairs.h"

namespace temper::parallel {

// A stage's transfers, in the order in which they begin, and end. On GPUs they do not hold up passes that do
// not need them (collectives::Pairs::begin_exchange).
class StageTransfers {
 public:
  explicit StageTransfers(collectives::Pairs& pairs) : pairs_(pairs) {}

  // Returns their number, counted from 1. What is sent is kept until a later transfer, or this one, has been
  // waited for: at most kMostUnderWay are not.
  int64_t begin(std::span<const collectives::Transfer> sent, std::span<const collectives::Transfer> received);
  // Work that is given to the device later comes after these, and after all that have a smaller number.
  void wait_for(int64_t transfer);

  bool is_done(int64_t transfer) const { return transfer <= last() - std::ssize(under_way_); }
  int64_t last() const { return begun_; }

  static constexpr int64_t kMostUnderWay = 4;

 private:
  collectives::Pairs& pairs_;
  std::deque<std::unique_ptr<collectives::TransfersUnderWay>> under_way_;  // the last ones that have begun
  int64_t begun_ = 0;
};

}  // namespace temper::parallel
