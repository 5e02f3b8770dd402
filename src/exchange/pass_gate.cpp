#include "exchange/pass_gate.h"

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace temper::exchange {

void PassGate::between_passes(const std::function<void()>& work) {
  Job job{work};
  std::unique_lock lock(mutex_);
  job_ = &job;
  changed_.notify_all();
  changed_.wait(lock, [&] { return job.done || (ended_ && !job.begun); });
  if (!job.done) {
    job_ = nullptr;
    fail_resources("[weights] the receiver ended before it took the weights");
  }
  lock.unlock();
  if (job.error) std::rethrow_exception(job.error);
}

void PassGate::run_job(std::unique_lock<std::mutex>& lock) {
  Job& job = *std::exchange(job_, nullptr);
  job.begun = true;
  lock.unlock();
  try {
    job.work();
  } catch (...) {
    job.error = std::current_exception();
  }
  lock.lock();
  job.done = true;
  changed_.notify_all();
}

std::optional<Taken> PassGate::take_new(const std::function<bool()>& stop, double deadline_seconds) {
  constexpr std::chrono::milliseconds kSlice(50);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (job_ != nullptr) run_job(lock);
    if (!held_ || (stop && stop())) return std::exchange(taken_, {});
    if (!broken_.empty() && !syncing_ && seconds_now() > broken_at_ + deadline_seconds)
      fail_resources(
          "[weights] a sync ended in the middle ({}), so the weights are partly old and partly new, and no "
          "others came within {:.1f} s; start again, or send all of them in time",
          broken_, deadline_seconds);
    changed_.wait_for(lock, kSlice, [&] { return job_ != nullptr || !held_; });
  }
}

bool PassGate::holds() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

void PassGate::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void PassGate::begin_sync(bool direct) {
  const std::lock_guard lock(mutex_);
  held_ = held_ || direct;
  syncing_ = true;
}

void PassGate::abandon_sync(const std::string& broken) {
  const std::lock_guard lock(mutex_);
  if (!broken.empty()) broken_ = broken;
  held_ = !broken_.empty();
  broken_at_ = seconds_now();
  syncing_ = false;
  changed_.notify_all();
}

void PassGate::publish_sync(const Taken& taken, bool direct) {
  const std::lock_guard lock(mutex_);
  taken_ = taken;
  if (direct) broken_.clear();
  held_ = !broken_.empty();
  syncing_ = false;
}

std::string PassGate::what_stays() const {
  const std::lock_guard lock(mutex_);
  return broken_.empty() ? "the old weights stay"
                         : "the weights are partly new and cannot be used until others have come whole";
}

}  // namespace temper::exchange
