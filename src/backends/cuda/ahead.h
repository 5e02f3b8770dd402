#pragma once
#include "backends/gpu/device_code.h"

namespace temper::backends {

// Loads that wait in shared memory until they are used: many are on their way without taking registers. There
// are two stages, one to read from while the other is filled. Each thread has slots of its own, so it does
// not wait for other threads.
template <int kSlots>
class Ahead {
 public:
  static size_t bytes(unsigned threads) { return size_t{2} * kSlots * sizeof(uint4) * threads; }

  // `memory`: bytes(threads of the block), shared by all of them.
  __device__ explicit Ahead(uint4* memory)
      : slots_(memory + threadIdx.y * blockDim.x + threadIdx.x), threads_(blockDim.x * blockDim.y) {}

  // Fills a slot of a stage with up to 16 bytes.
  template <class Value>
  __device__ void send(int stage, int slot, const Value* from) const {
    void* to = slots_ + (stage * kSlots + slot) * threads_;
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (sizeof(Value) == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
    else if constexpr (sizeof(Value) >= 4)
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(Value))
                   : "memory");
    else
      *static_cast<Value*>(to) = *from;
  }
  // What was sent since the last call is one group.
  __device__ void commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Until all groups but the last `kLater` are there.
  template <int kLater>
  __device__ void wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
  }
  template <class Value>
  __device__ const Value& at(int stage, int slot) const {
    return *reinterpret_cast<const Value*>(slots_ + (stage * kSlots + slot) * threads_);
  }

 private:
  uint4* slots_;
  unsigned threads_;
};

}  // namespace temper::backends
