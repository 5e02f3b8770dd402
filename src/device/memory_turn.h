#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "device/memory.h"

namespace temper {

// A region that makes room while others work. kDrop: what is in it is worth nothing then.
struct Sleeper {
  MemoryTag tag;
  PauseMode mode;
};

// A while in which regions sleep because their memory is needed for something else: the optimizer's state
// during a rollout, a cache of rollouts during updates. What is kept lies in the CPU's memory meanwhile
// (pinned where the device is a GPU). Addresses stay, so that captured work and tensors live on.
//
// Allocating from a region that sleeps, pausing it or waking it twice is an Error that names the region and
// the turn. Reading its memory is a fault of the program; owners ask require_awake() first.
class MemoryTurn {
 public:
  // Puts them to sleep. `whose`: "a rollout", for errors. An Error (kResources where the CPU's memory is too
  // small for what is kept, with what would fit) leaves all of them awake.
  MemoryTurn(Device device, std::string whose, const std::vector<Sleeper>& sleepers);
  ~MemoryTurn();  // wakes what sleeps; what cannot wake stays asleep, and the log says so
  MemoryTurn(const MemoryTurn&) = delete;
  MemoryTurn& operator=(const MemoryTurn&) = delete;

  // All that sleeps, in the order of their tags: weights first, caches after them. An Error (kResources)
  // where there is no memory for one: it and those after it still sleep, and wake() may be called again.
  void wake();
  void wake(MemoryTag tag);  // only this one: weights, before they are written

  int64_t kept_bytes() const { return kept_bytes_; }  // of the CPU's memory, at the beginning

 private:
  Pool& pool_;
  std::string whose_;
  std::vector<MemoryTag> asleep_;  // in the order of waking
  int64_t kept_bytes_ = 0;
};

// An Error that names the region, the turn and `user` where the region sleeps.
void require_awake(Device device, MemoryTag tag, std::string_view user);

// Whose turn it is while a pool's region sleeps: "during a rollout"; without a turn "paused".
std::string turn_of(const Pool& pool, MemoryTag tag);

}  // namespace temper
