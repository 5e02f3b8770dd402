#include "collectives/threads/meeting.h"

#include "base/text.h"

namespace temper::collectives {

Meeting::Meeting(int ranks, double deadline_seconds)
    : size_(static_cast<size_t>(ranks)),
      deadline_(deadline_seconds),
      calls_(size_),
      brought_(size_),
      left_(size_) {}

void Meeting::set_deadline(double seconds) {
  const std::lock_guard lock(mutex_);
  deadline_ = std::chrono::duration<double>(seconds);
}

void Meeting::break_off(std::string why, ErrorKind kind) {
  if (!broken_) broken_.emplace("[collectives] " + why, kind);
  changed_.notify_all();
}

void Meeting::fail_as_all() const { throw Error(*broken_); }

std::string Meeting::missing() const {
  std::vector<std::string> ranks;
  for (size_t i = 0; i < size_; ++i)
    if (calls_[i] == nullptr) ranks.push_back(std::to_string(i));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(ranks);
}

void Meeting::refuse_mismatch() {
  for (size_t i = 1; i < size_; ++i)
    if (!same(*calls_[i], *calls_[0]))
      return break_off(describe_mismatch(to_string(*calls_[0]), static_cast<int>(i), to_string(*calls_[i])),
                       ErrorKind::kDefect);
}

void Meeting::arrive(int rank, const Call& call, const void* mine) {
  calls_[static_cast<size_t>(rank)] = &call;
  brought_[static_cast<size_t>(rank)] = mine;
  ++arrived_;
  for (size_t i = 0; i < size_; ++i)
    if (left_[i])
      break_off(fmt::format("rank {} has ended, but rank {} waits for it in {}", i, rank, to_string(call)),
                ErrorKind::kDefect);
  if (arrived_ == size_) refuse_mismatch();
  if (broken_) fail_as_all();
  if (arrived_ < size_) return;
  ++opened_;
  changed_.notify_all();
}

void Meeting::meet(int rank, const Call& call, const void* mine,
                   const std::function<void(const Brought&)>& work) {
  std::unique_lock lock(mutex_);
  if (broken_) fail_as_all();
  const int64_t before = closed_;
  arrive(rank, call, mine);
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(deadline_);
  if (!changed_.wait_until(lock, until, [&] { return opened_ > before || broken_; }))
    break_off(fmt::format("{} did not come to {} within {} s", missing(), to_string(call), deadline_.count()),
              ErrorKind::kResources);
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
  // Without a deadline: nobody waits for anything in between, and a rank that left early would take away
  // what others read.
  changed_.wait(lock, [&] { return closed_ > before; });
  if (failure) std::rethrow_exception(failure);
}

void Meeting::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<size_t>(rank)] = 1;
  if (broken_) return;  // and whoever waited is gone
  for (size_t i = 0; i < size_; ++i)
    if (calls_[i] != nullptr)
      break_off(
          fmt::format("rank {} has ended, but rank {} waits for it in {}", rank, i, to_string(*calls_[i])),
          ErrorKind::kDefect);
}

void Meeting::stop(int rank, const std::string& reason, ErrorKind kind) {
  const std::lock_guard lock(mutex_);
  break_off(fmt::format("rank {} stopped: {}", rank, reason), kind);
}

}  // namespace temper::collectives
