#pragma once
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace temper {

// The thread sanitizer does not see how OpenMP's threads wait for each other. Annotations tell it that tasks
// begin after what came before their region and end before what follows; among themselves they have no order.
// Does nothing in other builds.
class ParallelRegion {
 public:
#ifdef __SANITIZE_THREAD__
  ParallelRegion() { __tsan_release(&begin_); }
  void begin_task() { __tsan_acquire(&begin_); }
  void end_task() { __tsan_release(&end_); }
  void end() { __tsan_acquire(&end_); }

 private:
  char begin_ = 0, end_ = 0;
#else
  void begin_task() {}
  void end_task() {}
  void end() {}
#endif
};

}  // namespace temper
