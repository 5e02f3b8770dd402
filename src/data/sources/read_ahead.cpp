#include "data/sources/read_ahead.h"

#include <system_error>

#include "base/error.h"
#include "base/threads/pinning.h"
#include "base/threads/threads.h"

namespace temper::data {
namespace {

constexpr size_t kBlock = 64;            // rows read at once on the pool
constexpr size_t kAheadPerThread = 128;  // rows waiting to be used

}  // namespace

ReadAhead::ReadAhead(const Mixture& mixture, RowOrder order, int64_t num_epochs, int64_t threads)
    : mixture_(&mixture), order_(std::move(order)), place_(order_.place()), num_epochs_(num_epochs) {
  threads_.reserve(static_cast<size_t>(threads));  // a thread that is not listed would not be joined
  try {
    for (int64_t i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        leave_core();
        work();
      });
  } catch (const std::system_error& error) {
    join();
    throw Error(fmt::format("[data.threads] thread {} of {} cannot be started: {}", threads_.size() + 1,
                            threads, error.what()),
                ErrorKind::kResources);
  } catch (...) {
    join();
    throw;
  }
}

ReadAhead::~ReadAhead() { join(); }

void ReadAhead::join() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  asked_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::read(Slot& slot) const {
  try {
    slot.row.read = mixture_->read(slot.row.row);
  } catch (...) {
    slot.failure = std::current_exception();
  }
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [&] { return stopping_ || !unread_.empty(); });
    if (stopping_) return;
    const SlotPtr slot = std::move(unread_.front());
    unread_.pop_front();
    lock.unlock();
    read(*slot);
    lock.lock();
    slot->done = true;
    done_.notify_one();
  }
}

void ReadAhead::ask() {
  const size_t most = threads_.empty() ? kBlock : kAheadPerThread * threads_.size();
  // With threads half of the queue is left before it is filled again, so that the lock is rarely taken.
  if (!queue_.empty() && (threads_.empty() || queue_.size() > most / 2)) return;
  std::vector<SlotPtr> fresh;
  while (queue_.size() < most && (num_epochs_ == 0 || order_.epoch() < num_epochs_)) {
    auto slot = std::make_shared<Slot>();
    slot->row.epoch = order_.epoch();
    slot->row.row = order_.next();
    slot->after = order_.place();
    queue_.push_back(slot);
    fresh.push_back(std::move(slot));
  }
  if (threads_.empty()) {
    parallel_for(static_cast<int64_t>(fresh.size()),
                 [&](int64_t i) { read(*fresh[static_cast<size_t>(i)]); });
    for (const SlotPtr& slot : fresh) slot->done = true;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    unread_.insert(unread_.end(), fresh.begin(), fresh.end());
  }
  asked_.notify_all();
}

std::optional<int64_t> ReadAhead::next_epoch() {
  ask();
  if (queue_.empty()) return std::nullopt;
  return queue_.front()->row.epoch;
}

ReadAhead::Row ReadAhead::take() {
  ask();
  invariant(!queue_.empty(), "a row was taken behind the end");
  const SlotPtr slot = std::move(queue_.front());
  queue_.pop_front();
  if (!threads_.empty()) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return slot->done; });
  }
  if (slot->failure) std::rethrow_exception(slot->failure);
  place_ = std::move(slot->after);
  return std::move(slot->row);
}

void ReadAhead::restore(const RowOrder::Place& place) {
  {
    const std::lock_guard lock(mutex_);
    unread_.clear();
  }
  queue_.clear();
  order_.restore(place);
  place_ = place;
}

}  // namespace temper::data
