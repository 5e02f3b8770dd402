#pragma once
#include <cstdint>
#include <functional>

// One pool for the whole process: OpenMP's, which oneDNN shares. base/threads/pinning.h: on which cores it
// runs.
namespace temper {

int num_threads();
// At least 1, for the calling thread and what it starts. Where threads are pinned, new ones are pinned, too.
// Not for tasks of the pool (ThreadLimit is).
void set_num_threads(int count);

// While one lives, the calling thread sees a pool of `count` threads, in libraries that share the pool, too.
// No thread is started, ended or moved, so that tasks of the pool may hold one.
class ThreadLimit {
 public:
  explicit ThreadLimit(int count) noexcept;
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

// Runs task(0) … task(count-1) on the pool, in no order. How the work is cut into tasks must not depend on
// the number of threads where results are summed, so that they are the same for any number. Exceptions reach
// the caller (the first one). Inside a task, a nested call runs in place.
void parallel_for(int64_t count, const std::function<void(int64_t)>& task);

// Runs body(begin, end) over [0, count) in pieces of `grain` (the last may be shorter).
void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace temper
