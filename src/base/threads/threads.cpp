#include "base/threads/threads.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/error.h"
#include "base/threads/parallel_region.h"
#include "base/threads/pinning.h"

namespace temper {

int num_threads() { return omp_get_max_threads(); }

void set_num_threads(int count) {
  invariant(omp_in_parallel() == 0, "[set_num_threads] called by a task of the pool");
  omp_set_num_threads(std::max(count, 1));
  pin_new_threads();
}

// OpenMP keeps the number for each thread by itself.
ThreadLimit::ThreadLimit(int count) noexcept : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
ThreadLimit::~ThreadLimit() { omp_set_num_threads(before_); }

void parallel_for(int64_t count, const std::function<void(int64_t)>& task) {
  if (count <= 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  std::exception_ptr failure;
  std::mutex mutex;
  std::atomic<bool> failed = false;
  ParallelRegion region;
#pragma omp parallel for schedule(dynamic)
  for (int64_t i = 0; i < count; ++i) {
    region.begin_task();
    try {
      if (!failed.load(std::memory_order_relaxed)) task(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) failure = std::current_exception();
    }
    region.end_task();
  }
  region.end();
  if (failure) std::rethrow_exception(failure);
}

void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t pieces = (count + grain - 1) / grain;
  parallel_for(pieces, [&](int64_t i) { body(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace temper
