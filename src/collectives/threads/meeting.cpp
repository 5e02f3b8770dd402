#include "collectives/threads/meeting.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "base/waited.h"

namespace temper::collectives {

Meeting::Meeting(int ranks)
    : size_(static_cast<size_t>(ranks)), calls_(size_), brought_(size_), open_(size_), left_(size_) {}

void Meeting::break_off(std::string why, ErrorKind kind) {
  if (!broken_) broken_.emplace("[collectives] " + why, kind);
  changed_.notify_all();
}

void Meeting::fail_as_all() const { throw GroupBroken(broken_->what(), broken_->kind()); }

void Meeting::break_off_for_ended(int rank, int waiting, const std::string& call) {
  break_off(fmt::format("rank {} has ended, but rank {} waits for it in {}", rank, waiting, call),
            ErrorKind::kDefect);
}

std::string Meeting::missing() const {
  std::vector<std::string> ranks;
  for (size_t i = 0; i < size_; ++i)
    if (calls_[i] == nullptr) ranks.push_back(std::to_string(i));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(ranks);
}

void Meeting::refuse_mismatch() {
  for (size_t i = 1; i < size_; ++i) {
    if (same(*calls_[i], *calls_[0])) continue;
    for (size_t rank = 0; rank < size_; ++rank)
      if (const Error* const failure = calls_[rank]->failure)
        return break_off(fmt::format("rank {} stopped: {}", rank, failure->what()), failure->kind());
    return break_off(describe_mismatch(to_string(*calls_[0]), static_cast<int>(i), to_string(*calls_[i])),
                     ErrorKind::kDefect);
  }
}

void Meeting::arrive(int rank, const Call& call, const void* mine) {
  calls_[static_cast<size_t>(rank)] = &call;
  brought_[static_cast<size_t>(rank)] = mine;
  ++arrived_;
  for (size_t i = 0; i < size_; ++i)
    if (left_[i]) break_off_for_ended(static_cast<int>(i), rank, to_string(call));
  if (arrived_ == size_) refuse_mismatch();
  if (broken_) fail_as_all();
  if (arrived_ < size_) return;
  ++opened_;
  changed_.notify_all();
}

void Meeting::meet(int rank, const Call& call, const void* mine, double deadline,
                   const std::function<void(const Brought&)>& work) {
  std::unique_lock lock(mutex_);
  if (broken_) fail_as_all();
  const int64_t before = closed_;
  arrive(rank, call, mine);
  const auto is_over = [&] { return opened_ > before || broken_; };
  if (call.failure != nullptr) deadline = std::min(deadline, kFailureWaits);
  for (Waited waited; !is_over();) {
    const double left = deadline - waited.seconds();
    if (left <= 0 && call.failure != nullptr)
      break_off(fmt::format("rank {} stopped: {}", rank, call.failure->what()), call.failure->kind());
    else if (left <= 0)
      break_off(fmt::format("{} did not come to {} within {} s", missing(), to_string(call), deadline),
                ErrorKind::kResources);
    else
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(left, Waited::kLook / 2)), is_over);
  }
  if (opened_ == before) fail_as_all();
  lock.unlock();
  std::exception_ptr failure;
  try {
    work(brought_);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (++done_ == size_) {
    arrived_ = done_ = 0;
    calls_.assign(size_, nullptr);
    ++closed_;
    changed_.notify_all();
  }
  // Without a deadline: no rank waits for anything in between, and a rank that left early would free what
  // others read.
  changed_.wait(lock, [&] { return closed_ > before; });
  if (failure) std::rethrow_exception(failure);
}

void Meeting::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<size_t>(rank)] = 1;
  if (broken_) return;  // and whoever waited is gone
  for (size_t i = 0; i < size_; ++i)
    if (calls_[i] != nullptr) break_off_for_ended(rank, static_cast<int>(i), to_string(*calls_[i]));
  changed_.notify_all();  // those who are in a transfer with it
}

void Meeting::stop(int rank, const std::string& reason, ErrorKind kind) {
  const std::lock_guard lock(mutex_);
  break_off(fmt::format("rank {} stopped: {}", rank, reason), kind);
}

}  // namespace temper::collectives
