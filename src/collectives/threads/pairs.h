#pragma once
#include "collectives/pairs.h"
#include "collectives/threads/meeting.h"

namespace temper::collectives {

// The receiving rank copies out of the sending rank's memory.
class ThreadPairs final : public Pairs {
 public:
  ThreadPairs(const Group& group, Meeting& meeting) : Pairs(group), meeting_(meeting) {}

 private:
  void do_exchange(const PairCalls& calls) override;

  Meeting& meeting_;
};

}  // namespace temper::collectives
