#pragma once
#include "backends/gpu/async_copies.h"
#include "backends/gpu/device_code.h"

// Small products of bfloat16 matrices in shared memory by one warp, summed in float32: from compute
// capability 8.0 on (PTX ISA, "ldmatrix" and "mma.sync", whose fragments these are).
namespace temper::backends {

// Four matrices of 8 x 8, whose rows lanes 0 to 7, 8 to 15, … point at; transposed: each matrix.
__device__ inline void load_matrices(uint32_t (&to)[4], const __nv_bfloat16* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from))
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&to)[4], const __nv_bfloat16* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from))
               : "memory");
}
// sums [16, 8] += a [16, 16] b [16, 8].
__device__ inline void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where a lane's part of sums [16, 8 n] is: values 0 and 1 at row() and column() and the next one, 2 and 3
// eight rows below.
__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int sum_row(int value = 0) { return lane() / 4 + value / 2 * 8; }
__device__ inline int sum_column(int value = 0) { return lane() % 4 * 2 + value % 2; }

// A matrix in shared memory. Rows are kPitch elements apart: 8 more than a multiple of 64, or 40, so that
// eight rows lie in different banks.
template <int kPitch>
struct TileView {
  const __nv_bfloat16* data;

  // a [16, 16] from (m, k) on, of this matrix or of its transpose.
  __device__ void left(uint32_t (&a)[4], int m, int k) const { load_matrices(a, in_rows(m, k)); }
  __device__ void left_turned(uint32_t (&a)[4], int m, int k) const { load_transposed(a, in_columns(k, m)); }
  // b [16, 16] from (k, n) on: its two halves of columns, one after the other.
  __device__ void right(uint32_t (&b)[4], int k, int n) const { load_transposed(b, in_rows(k, n)); }
  __device__ void right_turned(uint32_t (&b)[4], int k, int n) const { load_matrices(b, in_columns(n, k)); }

 private:
  __device__ const __nv_bfloat16* in_rows(int row, int column) const {
    return data + (row + lane() % 16) * kPitch + column + lane() / 16 * 8;
  }
  __device__ const __nv_bfloat16* in_columns(int row, int column) const {
    return data + (row + lane() / 16 * 8 + lane() % 8) * kPitch + column + lane() / 8 % 2 * 8;
  }
};
template <int kRows, int kPitch>
__device__ TileView<kPitch> view(const __nv_bfloat16 (&tile)[kRows][kPitch]) {
  return {&tile[0][0]};
}

// sums [16, 8 kTiles] += a b, with b from load(b, n) for columns n to n + 15.
template <int kTiles, class Load>
__device__ void multiply_row(float (&sums)[kTiles][4], const uint32_t (&a)[4], Load&& load) {
#pragma unroll
  for (int n = 0; n < kTiles; n += 2) {
    uint32_t b[4];
    load(b, n * 8);
    multiply(sums[n], a, b[0], b[1]);
    multiply(sums[n + 1], a, b[2], b[3]);
  }
}

__device__ inline uint32_t pair_of(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline void store_pair(__nv_bfloat16* to, float first, float second) {
  *reinterpret_cast<uint32_t*>(to) = pair_of(first, second);
}
__device__ inline float2 widen_pair(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}
__device__ inline float2 load_pair(const __nv_bfloat16* from) {
  return widen_pair(*reinterpret_cast<const uint32_t*>(from));
}

// Four sums of a tile [16, 8] as two pairs, and those of two adjacent tiles as a [16, 16] operand of a matrix
// multiplication.
__device__ inline void left_of_sums(uint32_t (&a)[4], const float (&first)[4], const float (&second)[4]) {
  a[0] = pair_of(first[0], first[1]);
  a[1] = pair_of(first[2], first[3]);
  a[2] = pair_of(second[0], second[1]);
  a[3] = pair_of(second[2], second[3]);
}
// A matrix of 8 x 8 that a warp holds in pairs, transposed.
__device__ inline uint32_t turn(uint32_t pair) {
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

// Of four adjacent lanes, lane r gets what each of them has in place r: four columns of pairs become four
// rows, which are stored with 16 bytes each.
__device__ inline void turn_quads(uint32_t (&a)[4]) {
  const bool odd = lane() % 2 != 0, upper = lane() % 4 >= 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? a[i] : a[i + 1], 1);
    (odd ? a[i] : a[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? a[i] : a[i + 2], 2);
    (upper ? a[i] : a[i + 2]) = other;
  }
}

// Copies of chunks (load_chunk) that a thread asked for since the last call are one group.
__device__ inline void commit_chunks() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLater>  // groups that may still be on their way
__device__ void wait_chunks() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

}  // namespace temper::backends
