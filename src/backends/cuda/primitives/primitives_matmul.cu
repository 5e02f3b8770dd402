// Products in float32: a block forms a square of c from strips of a and b in shared memory.
#include "backends/gpu/device_code.h"
#include "backends/cuda/primitives/primitives.h"

namespace temper::backends {
namespace {

constexpr int kTile = 64, kDepth = 16, kSide = 4;  // of a block's square, its strips, and a thread's part
constexpr int kAcross = kTile / kSide;             // threads along a side
static_assert(kAcross * kAcross == kThreads);

struct Sizes {
  int64_t batch, m, k, n;
};

// A strip of `rows` x depth, stored with the depth innermost (or, transposed, outermost); zeros beyond the
// edge.
template <bool kTransposed>
__device__ inline void load_strip(float (*strip)[kTile + 1], const float* from, int64_t rows, int64_t depth,
                                  int64_t first_row, int64_t first_depth) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    // Neighbouring threads read neighbouring numbers.
    const int row = kTransposed ? i % kTile : i / kDepth, step = kTransposed ? i / kTile : i % kDepth;
    const int64_t r = first_row + row, d = first_depth + step;
    const bool inside = r < rows && d < depth;
    strip[step][row] = inside ? from[kTransposed ? d * rows + r : r * depth + d] : 0.f;
  }
}

template <bool kTransposeA, bool kTransposeB>
__global__ void multiply(const float* a, const float* b, float* c, Sizes size) {
  __shared__ float a_strip[kDepth][kTile + 1], b_strip[kDepth][kTile + 1];
  const int64_t row = int64_t{blockIdx.y} * kTile, column = int64_t{blockIdx.x} * kTile;
  const int y = threadIdx.x / kAcross, x = threadIdx.x % kAcross;
  for (int64_t batch = blockIdx.z; batch < size.batch; batch += gridDim.z) {
    float sums[kSide][kSide] = {};
    for (int64_t depth = 0; depth < size.k; depth += kDepth) {
      load_strip<kTransposeA>(a_strip, a + batch * size.m * size.k, size.m, size.k, row, depth);
      // Seen from c's columns, a plain b has the depth outermost.
      load_strip<!kTransposeB>(b_strip, b + batch * size.k * size.n, size.n, size.k, column, depth);
      __syncthreads();
      for (int step = 0; step < kDepth; ++step)
        for (int i = 0; i < kSide; ++i)
          for (int j = 0; j < kSide; ++j)
            sums[i][j] += a_strip[step][y + i * kAcross] * b_strip[step][x + j * kAcross];
      __syncthreads();
    }
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j) {
        const int64_t r = row + y + i * kAcross, k = column + x + j * kAcross;
        if (r < size.m && k < size.n) c[(batch * size.m + r) * size.n + k] = sums[i][j];
      }
  }
}

unsigned tiles(int64_t size) { return static_cast<unsigned>((size + kTile - 1) / kTile); }

void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c) {
  const Sizes size{c.dim(0), c.dim(1), a.dim(transpose_a ? 1 : 2), c.dim(2)};
  if (c.numel() == 0) return;
  constexpr int64_t kMostBlocks = 65535;  // along y and z
  if (tiles(size.m) > kMostBlocks) fail("[cuda] a product of {} rows is too tall", size.m);
  const dim3 grid(tiles(size.n), tiles(size.m), static_cast<unsigned>(std::min(size.batch, kMostBlocks)));
  auto* const kernel = transpose_a ? (transpose_b ? multiply<true, true> : multiply<true, false>)
                                   : (transpose_b ? multiply<false, true> : multiply<false, false>);
  kernel<<<grid, kThreads, 0, device::stream(c.device())>>>(a.data<float>(), b.data<float>(), c.data<float>(),
                                                            size);
  device::check_launch("matmul");
}

}  // namespace

void set_matmul(primitives::PrimitiveFunctions& functions) { functions.matmul = matmul; }

}  // namespace temper::backends
