#include "collectives/threads/pairs.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "base/waited.h"

namespace temper::collectives {
void ThreadPairs::do_exchange(const PairCalls& calls) {
  check_on_hosts(calls);
  meeting_.exchange(group().rank(), calls, group().deadline());
}

std::vector<int> Meeting::OpenCalls::partners() const {
  std::vector<int> ranks;
  for (const PairCall* const call : received) ranks.push_back(call->from);
  if (ranks.empty())
    for (const PairCall* const call : sent) ranks.push_back(call->to);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

const PairCall& Meeting::OpenCalls::with(int rank) const {
  for (const PairCall* const call : received)
    if (call->from == rank) return *call;
  return **std::find_if(sent.begin(), sent.end(), [&](const PairCall* call) { return call->to == rank; });
}

bool Meeting::take(int rank, size_t which) {
  OpenCalls& own = *open_[static_cast<size_t>(rank)];
  const PairCall* const wanted = own.received[which];
  OpenCalls* const theirs = open_[static_cast<size_t>(wanted->from)];
  if (theirs == nullptr) return false;
  const auto found = std::find_if(theirs->sent.begin(), theirs->sent.end(),
                                  [&](const PairCall* c) { return c->to == rank; });
  if (found == theirs->sent.end()) return false;
  if (!same(**found, *wanted)) {
    break_off(describe_mismatch(wanted->from, to_string(**found), rank, to_string(*wanted)),
              ErrorKind::kDefect);
    return false;
  }
  // The mutex is held: the sender cannot leave, nor free what it sends.
  std::copy_n(static_cast<const std::byte*>((*found)->tensor.raw()), wanted->tensor.bytes(),
              static_cast<std::byte*>(wanted->tensor.raw()));
  theirs->sent.erase(found);
  own.received.erase(own.received.begin() + static_cast<std::ptrdiff_t>(which));
  changed_.notify_all();
  return true;
}

bool Meeting::take_any(int rank) {
  const OpenCalls& own = *open_[static_cast<size_t>(rank)];
  for (size_t i = 0; i < own.received.size() && !broken_; ++i)
    if (take(rank, i)) return true;
  return false;
}

void Meeting::exchange(int rank, const PairCalls& calls, double deadline) {
  std::unique_lock lock(mutex_);
  if (broken_) fail_as_all();
  OpenCalls own;
  for (const PairCall& call : calls.sent) own.sent.push_back(&call);
  for (const PairCall& call : calls.received) own.received.push_back(&call);
  open_[static_cast<size_t>(rank)] = &own;
  changed_.notify_all();
  for (Waited waited;;) {
    while (take_any(rank))
      ;
    if (broken_ || own.is_done()) break;
    for (const int other : own.partners())
      if (left_[static_cast<size_t>(other)]) break_off_for_ended(other, rank, to_string(own.with(other)));
    const double left = deadline - waited.seconds();
    if (left <= 0 && !broken_) {
      const std::vector<int> late = own.partners();
      break_off(fmt::format("rank {} did not come to {} within {} s", late[0], to_string(own.with(late[0])),
                            deadline),
                ErrorKind::kResources);
    }
    if (!broken_) changed_.wait_for(lock, std::chrono::duration<double>(std::min(left, Waited::kLook / 2)));
  }
  open_[static_cast<size_t>(rank)] = nullptr;
  if (!own.is_done()) fail_as_all();
}

}  // namespace temper::collectives
