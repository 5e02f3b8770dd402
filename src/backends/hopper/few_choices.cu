// A warp computes 16 rows of a chosen matrix times the choice's row by small products, whose sums have the bits of
// wgmma's; the rows come to it by bulk copies through a ring of its own, because only long copies reach the memory's
// speed. One kernel for gate|up with swiglu, one for down with the sum over a token's choices.
#include "backends/hopper/few_choices.h"

#include "backends/gpu/async_copies.h"
#include "backends/gpu/dependent_launch.h"
#include "backends/gpu/swiglu_element.h"
#include "backends/hopper/wgmma.h"

namespace temper::backends::hopper {
namespace {

using ops::MoeExperts;

constexpr int kMostTokens = 4;
constexpr int kRows = 16, kHalf = kRows / 2;  // of a matrix that a warp has
constexpr int kStep = 256;                    // columns of a stage: copies of 512 bytes
constexpr int kDepth = 32;                    // two small products; depths and columns are multiples of it
constexpr int kRowBytes = 2 * kStep + 16, kStageBytes = kRows * kRowBytes;  // rows begin at different banks
constexpr int kUpStages = 4, kUpWarps = 2, kDownStages = 2, kMostChoices = 16;
constexpr int kHeader = 256;  // bytes before the rows of x, which are aligned to this: 16 zeros, then barriers

struct Arguments {
  const __nv_bfloat16 *x, *matrices;
  const int* ids;        // [tokens, top_k]
  const float* weights;  // the same
  __nv_bfloat16* y;
  int depth, columns;  // of a matrix: `columns` rows of `depth`; gate and up have `columns` rows each
  int top_k;
};

__host__ __device__ constexpr int header_bytes(int warps, int stages) {
  return (16 + 8 * warps * stages + kHeader - 1) / kHeader * kHeader;
}

// Shared memory of a block: the header, the rows of x, the warps' rings.
template <int kStages>
__host__ __device__ constexpr int shared_bytes(int warps, int rows, int depth) {
  return header_bytes(warps, kStages) + rows * depth * 2 + warps * kStages * kStageBytes;
}

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / 32; }

// Sums of a warp's rows times one row of x. Each small product has the row in the first of its 8 columns.
template <int kStages>
class RowProducts {
 public:
  // `rows_of_x`: in the block's shared memory. Before the block meets: barriers and zeros are written here.
  __device__ RowProducts(uint32_t memory, int warps, int rows_of_x, int depth)
      : zeros_(memory),
        barriers_(memory + 16 + 8 * kStages * warp()),
        ring_(memory + header_bytes(warps, kStages) + rows_of_x * depth * 2 + warp() * kStages * kStageBytes),
        depth_(depth) {
    if (threadIdx.x == 0) store_shared(zeros_, {});
    if (lane() != 0) return;
    for (int stage = 0; stage < kStages; ++stage) init_barrier(barriers_ + 8 * stage, 1);
    fence_barriers();
  }

  // `row`: of the matrix, the one that this lane copies, of lanes below kRows.
  __device__ void start(const __nv_bfloat16* row) {
    row_ = row;
    __syncwarp();
    for (int step = 0; step < kStages; ++step) send(step);
  }

  // Row i < kHalf of the warp's rows is in sums[0] of lane 4 i, row kHalf + i in its sums[2].
  __device__ void add(uint32_t x, float (&sums)[4]) {
    for (int step = 0; step * kStep < depth_; ++step) {
      const int stage = step % kStages, columns = min(kStep, depth_ - step * kStep);
      wait(barriers_ + 8 * stage, step / kStages % 2);
      const uint32_t rows = ring_ + stage * kStageBytes + lane() % kRows * kRowBytes + lane() / kRows * 16;
      const uint32_t first = x + step * 2 * kStep + lane() / 8 * 16;
#pragma unroll 4
      for (int k = 0; k < columns; k += kDepth) {
        uint32_t a[2][4], b[4];
        load_tiles(rows + 2 * k, a[0]);
        load_tiles(rows + 2 * k + kDepth, a[1]);
        load_tiles(lane() % 8 == 0 ? first + 2 * k : zeros_, b);
        add_small_product(sums, a[0], b);
        add_small_product(sums, a[1], b + 2);
      }
      __syncwarp();  // all have read the stage
      send(step + kStages);
    }
  }

 private:
  __device__ void send(int step) {
    if (step * kStep >= depth_) return;
    const int stage = step % kStages, bytes = 2 * min(kStep, depth_ - step * kStep);
    if (lane() == 0) expect_bytes(barriers_ + 8 * stage, kRows * bytes);
    __syncwarp();
    if (lane() < kRows)
      load_bytes_once(ring_ + stage * kStageBytes + lane() * kRowBytes, row_ + step * kStep, bytes,
                      barriers_ + 8 * stage);
  }

  uint32_t zeros_, barriers_, ring_;
  int depth_;
  const __nv_bfloat16* row_ = nullptr;
};

// By `threads` threads, of which this is one.
__device__ inline void copy_row(uint32_t to, const __nv_bfloat16* from, int count, int thread, int threads) {
  for (int i = thread; i < count / 8; i += threads)
    store_shared(to + 16 * i, *(reinterpret_cast<const uint4*>(from) + i));
}

__device__ inline float rounded(float value) { return widen(narrow<__nv_bfloat16>(value)); }

// y [choices, columns] = weight · swiglu of gate|up. A warp has kHalf columns of gate and of up.
__global__ void __launch_bounds__(kUpWarps * 32) multiply_gate_up(const Arguments a) {
  extern __shared__ __align__(16) char memory[];
  const uint32_t shared = shared_address(memory);
  RowProducts<kUpStages> products(shared, kUpWarps, 1, a.depth);
  wait_for_inputs();
  const int choice = static_cast<int>(blockIdx.y),
            column = (static_cast<int>(blockIdx.x) * kUpWarps + warp()) * kHalf;
  const int in_half = lane() % kHalf, up = lane() / kHalf % 2;
  const int64_t row = int64_t{a.ids[choice]} * 2 * a.columns + up * a.columns + column + in_half;
  products.start(a.matrices + row * a.depth);
  const float weight = a.weights[choice];
  const uint32_t x = shared + header_bytes(kUpWarps, kUpStages);
  copy_row(x, a.x + int64_t{choice / a.top_k} * a.depth, a.depth, static_cast<int>(threadIdx.x), kUpWarps * 32);
  __syncthreads();
  float sums[4] = {};
  products.add(x, sums);
  if (lane() % 4 == 0)
    a.y[int64_t{choice} * a.columns + column + lane() / 4] =
        narrow<__nv_bfloat16>(weight * swiglu(rounded(sums[0]), rounded(sums[2])));
}

// y [tokens, columns] = Σ_j x[j]'s product, j ascending. A warp has a choice.
__global__ void multiply_down(const Arguments a) {
  extern __shared__ __align__(16) char memory[];
  __shared__ float products_of[kMostChoices][kRows];
  const uint32_t shared = shared_address(memory);
  RowProducts<kDownStages> products(shared, a.top_k, a.top_k, a.depth);
  wait_for_inputs();
  const int64_t token = blockIdx.y, choice = token * a.top_k + warp();
  const int column = static_cast<int>(blockIdx.x) * kRows;
  products.start(a.matrices + (int64_t{a.ids[choice]} * a.columns + column + lane() % kRows) * a.depth);
  const uint32_t x = shared + header_bytes(a.top_k, kDownStages) + warp() * a.depth * 2;
  copy_row(x, a.x + choice * a.depth, a.depth, lane(), 32);
  __syncthreads();
  float sums[4] = {};
  products.add(x, sums);
  if (lane() % 4 == 0) {
    products_of[warp()][lane() / 4] = rounded(sums[0]);
    products_of[warp()][kHalf + lane() / 4] = rounded(sums[2]);
  }
  __syncthreads();
  if (threadIdx.x >= kRows) return;
  float sum = 0;
  for (int j = 0; j < a.top_k; ++j) sum += products_of[j][threadIdx.x];
  a.y[token * a.columns + column + threadIdx.x] = narrow<__nv_bfloat16>(sum);
}

const __nv_bfloat16* start_of(const Tensor& tensor) { return static_cast<const __nv_bfloat16*>(tensor.raw()); }

int down_bytes(const MoeExperts& op) {
  const auto top_k = static_cast<int>(op.ids.dim(1));
  return shared_bytes<kDownStages>(top_k, top_k, static_cast<int>(op.width()));
}
int up_bytes(const MoeExperts& op) { return shared_bytes<kUpStages>(kUpWarps, 1, static_cast<int>(op.hidden())); }

}  // namespace

bool are_few_choices(const MoeExperts& op) {
  const int64_t tokens = op.ids.dim(0), top_k = op.ids.dim(1);
  if (tokens < 1 || tokens > kMostTokens || top_k > kMostChoices || op.hidden() % kDepth != 0 ||
      op.width() % kDepth != 0)
    return false;
  for (const Tensor* tensor : {&op.x, &op.gate_up, &op.down})
    if (!is_aligned(*tensor)) return false;
  constexpr int64_t kBesides = kMostChoices * kRows * sizeof(float);
  return std::max(up_bytes(op), down_bytes(op)) + kBesides <= scratch_bytes(op.x.device());
}

void few_choices(const MoeExperts& op, const Tensor& y) {
  const Device device = y.device();
  const auto tokens = static_cast<unsigned>(op.ids.dim(0)), top_k = static_cast<unsigned>(op.ids.dim(1));
  const Tensor inner =
      Tensor::empty({op.ids.numel(), op.width()}, DType::kBF16, MemoryTag::kWorkspace, device);
  Arguments a{start_of(op.x),
              start_of(op.gate_up),
              op.ids.data<int32_t>(),
              op.weights.data<float>(),
              static_cast<__nv_bfloat16*>(inner.raw()),
              static_cast<int>(op.hidden()),
              static_cast<int>(op.width()),
              static_cast<int>(top_k)};
  allow_scratch(multiply_gate_up, static_cast<size_t>(up_bytes(op)));
  DependentLaunch{"moe_experts of a few tokens", device, dim3(static_cast<unsigned>(op.width()) / (kUpWarps * kHalf), tokens * top_k), kUpWarps * 32,
                  static_cast<size_t>(up_bytes(op))}(multiply_gate_up, a);
  a.x = a.y;
  a.matrices = start_of(op.down);
  a.y = static_cast<__nv_bfloat16*>(y.raw());
  std::swap(a.depth, a.columns);
  allow_scratch(multiply_down, static_cast<size_t>(down_bytes(op)));
  DependentLaunch{"moe_experts of a few tokens", device, dim3(static_cast<unsigned>(op.hidden()) / kRows, tokens), top_k * 32,
                  static_cast<size_t>(down_bytes(op))}(multiply_down, a);
}

}  // namespace temper::backends::hopper
