#pragma once
#include <cuda_runtime.h>

#include <cstdint>

// Bulk copies from global to shared memory, for GPUs of compute capability 9.0 and later (PTX ISA, "Data
// Movement and Conversion Instructions: Asynchronous copy"): one thread asks, the copy engine moves, a
// barrier tells all.
namespace temper::backends {

// A copy is cut into chunks, so that the first can be used while the last are on their way.
inline constexpr int kChunks = 4;

__device__ inline unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// `count` elements in chunks of `chunk`, the last of them fewer or none; addresses and sizes are multiples of
// 16 bytes. `arrived`: kChunks barriers in shared memory, not yet initialized. Called by one thread, before a
// __syncthreads().
template <class T>
__device__ inline void send_chunks(uint64_t* arrived, T* to, const T* from, int count, int chunk) {
  for (int c = 0; c < kChunks; ++c)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived + c)));
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  for (int c = 0; c < kChunks; ++c) {
    const int at = c * chunk, size = max(0, min(chunk, count - at)),
              bytes = size * static_cast<int>(sizeof(T));
    const unsigned barrier = shared_address(arrived + c);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    if (size > 0)
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              shared_address(to + at)),
          "l"(from + at), "r"(bytes), "r"(barrier)
          : "memory");
  }
}

// Until a chunk is there, for every thread that is going to read it.
__device__ inline void wait_for(uint64_t* arrived) {
  asm volatile(
      "{\n.reg .pred there;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], 0;\n"
      "@!there bra again;\n}" ::"r"(shared_address(arrived))
      : "memory");
}

}  // namespace temper::backends
