#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// Working memory of a task, aligned to 64 bytes, not initialized. A little comes from a stack of the thread's
// own: tasks of short documents are over so soon that threads would wait for each other at the pool. More is
// a tensor. The last that was made goes first.
class TaskMemory {
 public:
  explicit TaskMemory(int64_t floats);
  ~TaskMemory();
  TaskMemory(const TaskMemory&) = delete;
  TaskMemory& operator=(const TaskMemory&) = delete;

  float* data() const { return data_; }
  // Bytes that this number of floats takes from the pool if nothing else is on the thread's stack.
  static int64_t pooled_bytes(int64_t floats);

 private:
  int64_t taken_ = 0;  // of the thread's
  Tensor tensor_;
  float* data_;
};

}  // namespace temper::backends
