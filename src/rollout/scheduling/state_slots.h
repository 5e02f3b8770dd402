#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <utility>
#include <vector>

namespace temper::rollout {

// Which slot of a cache belongs to which running sequence, and which slots keep copies of states that other
// sequences may continue. The first `running` slots are for sequences, those behind them for as many copies,
// at least two: of where a prompt and its answer ended. A copy has the serial of the page at whose end the
// state was taken (PagePool); the oldest makes room for a new one.
class StateSlots {
 public:
  explicit StateSlots(int64_t running);

  // Slots for this many sequences, and for copies.
  static int64_t count_for(int64_t running) { return running + copies_for(running); }
  int64_t size() const { return count_for(running_); }
  int32_t take();  // for a sequence; there must be one left
  void give_back(int32_t slot);

  // The slot of the copy with this serial; nothing where there is none.
  std::optional<int32_t> find(uint64_t serial) const;
  // The slot into which to copy the state of this serial; nothing where a copy is kept already.
  std::optional<int32_t> keep(uint64_t serial);
  // Copies whose serial is no longer `held` make room.
  void drop_unless(const std::function<bool(uint64_t)>& held);
  // No sequence has a slot and no copy is kept: slots are taken in the order of a new object.
  void forget();

 private:
  static int64_t copies_for(int64_t running) { return std::max<int64_t>(running, 2); }

  const int64_t running_;
  std::vector<int32_t> free_;
  std::list<std::pair<uint64_t, int32_t>> kept_;  // serials and slots, the oldest first
};

}  // namespace temper::rollout
