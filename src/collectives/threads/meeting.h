#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/group.h"

namespace temper::collectives {

// Where the ranks of one process meet.
class Meeting {
 public:
  explicit Meeting(int ranks);

  // What each rank brings to a call; it stays valid until all have done their work.
  using Brought = std::vector<const void*>;
  // Waits for all ranks, `deadline` seconds at most, does `work`, and waits until all have done theirs.
  // Throws as Group says, or what `work` throws.
  void meet(int rank, const Call& call, const void* mine, double deadline,
            const std::function<void(const Brought&)>& work);
  // Of a rank with some of the others: waits until all of them are done, `deadline` seconds at most. Throws
  // as Pairs says (pairs.cpp).
  void exchange(int rank, const PairCalls& calls, double deadline);

  // The rank will not come any more: it has ended, or has stopped for this reason.
  void leave(int rank);
  void stop(int rank, const std::string& reason, ErrorKind kind);

 private:
  // Of all ranks; the mutex is held. The first reason is the one that all hear.
  void break_off(std::string why, ErrorKind kind);
  [[noreturn]] void fail_as_all() const;
  void arrive(int rank, const Call& call, const void* mine);
  void refuse_mismatch();
  std::string missing() const;  // "rank 1"
  void break_off_for_ended(int rank, int waiting, const std::string& call);

  // What is left of the transfers of a rank that is in exchange().
  struct OpenCalls {
    std::vector<const PairCall*> sent, received;
    bool is_done() const { return sent.empty() && received.empty(); }
    std::vector<int> partners() const;  // that have not sent what is awaited, or else not received
    const PairCall& with(int rank) const;
  };
  // Receives the transfer of this place in the rank's list, where it is there.
  bool take(int rank, size_t which);
  bool take_any(int rank);

  const size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Call*> calls_;  // of those who have arrived
  Brought brought_;
  std::vector<OpenCalls*> open_;  // by rank; null: it is not in exchange()
  std::vector<char> left_;
  size_t arrived_ = 0, done_ = 0;
  int64_t opened_ = 0, closed_ = 0;  // meetings so far
  std::optional<Error> broken_;
};

}  // namespace temper::collectives
