#pragma once
#include "backends/gpu/async_copies.h"

// Rows by bulk copies into shared memory: one thread asks, the copy engine moves, a barrier tells all.
namespace temper::backends {

// A copy is cut into chunks, so that the first can be used while the last are on their way.
inline constexpr int kChunks = 4;

// `count` elements in chunks of `chunk`, the last of them fewer or none; addresses and sizes are multiples of
// 16 bytes. `arrived`: kChunks barriers in shared memory, not yet initialized. Called by one thread, before a
// __syncthreads().
template <class T>
__device__ inline void send_chunks(uint64_t* arrived, T* to, const T* from, int count, int chunk) {
  for (int c = 0; c < kChunks; ++c) init_barrier(shared_address(arrived + c), 1);
  fence_barriers();
  fence_shared();
  for (int c = 0; c < kChunks; ++c) {
    const int at = c * chunk, size = max(0, min(chunk, count - at)),
              bytes = size * static_cast<int>(sizeof(T));
    const uint32_t barrier = shared_address(arrived + c);
    expect_bytes(barrier, bytes);
    if (size > 0) load_bytes(shared_address(to + at), from + at, bytes, barrier);
  }
}

// Until a chunk is there, for every thread that is going to read it.
__device__ inline void wait_for(uint64_t* arrived) { wait(shared_address(arrived), 0); }

}  // namespace temper::backends
