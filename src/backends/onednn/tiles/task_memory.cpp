#include "backends/onednn/tiles/task_memory.h"

#include <cstdlib>
#include <memory>
#include <new>

#include "base/threads/per_thread.h"

namespace temper::backends {
namespace {

constexpr int64_t kAlign = 16, kOfThread = 1 << 16;  // floats

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};

struct Stack {
  std::unique_ptr<float, Free> memory;
  int64_t used = 0;
};
Stack& stack_here() {
  static const PerThread<Stack> stacks;
  return stacks.get();
}

float* begin_of(Stack& stack) {
  if (stack.memory == nullptr) {
    stack.memory.reset(static_cast<float*>(std::aligned_alloc(64, kOfThread * sizeof(float))));
    if (stack.memory == nullptr) throw std::bad_alloc();
  }
  return stack.memory.get();
}

}  // namespace

TaskMemory::TaskMemory(int64_t floats) {
  Stack& stack = stack_here();
  const int64_t wanted = (floats + kAlign - 1) / kAlign * kAlign;
  if (stack.used + wanted <= kOfThread) {
    data_ = begin_of(stack) + stack.used;
    taken_ = wanted;
    stack.used += wanted;
  } else {
    tensor_ = Tensor::empty({floats}, DType::kF32, MemoryTag::kWorkspace);
    data_ = tensor_.data<float>();
  }
}

int64_t TaskMemory::pooled_bytes(int64_t floats) {
  return floats <= kOfThread ? 0 : floats * static_cast<int64_t>(sizeof(float));
}

TaskMemory::~TaskMemory() { stack_here().used -= taken_; }

}  // namespace temper::backends
