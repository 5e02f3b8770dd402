// Products of experts' rows for Hopper: one launch for all experts, whose rows only the GPU knows.
// The matrix's columns are the first dimension of a tile's sums and its rows the second, as that has any multiple of
// 8: an expert's rows are divided evenly, so that few sums are computed for padding. A block has tiles of 256 columns
// of the matrix and at most 128 rows, each of its two warpgroups 2 x 64 of the columns, and walks along the depth in
// steps of 64; a third warpgroup copies operands in, four steps ahead, and gathers rows meanwhile. Two blocks with
// rows of the same expert form a cluster, and each copies half of the matrix's step into both. A tile is rounded when
// it is complete, and stored in eight pieces of 16 rows, behind the first eight steps of the next one.
#include <algorithm>

#include "backends/gpu/device_code.h"
#include "backends/gpu/swiglu_element.h"
#include "backends/hopper/expert_copies.h"
#include "backends/hopper/wgmma_columns.h"

namespace temper::backends::hopper {
namespace {

using namespace experts;
using Arguments = ExpertProductArguments;

// A warpgroup's piece of d, twice, and the weights of its tokens, twice.
constexpr int kPieceTokens = 16, kPieces = kMostTokens / kPieceTokens, kPieceBytes = 2 * kPieceTokens * 128;
constexpr int kFactorBytes = kMostTokens * 4, kFactors = kStores + kConsumers * 2 * kPieceBytes;
constexpr int kSharedBytes = kFactors + kConsumers * 2 * kFactorBytes + kGroupBytes;  // begins at a multiple of that

template <bool kTranspose, bool kGather, Gate kGate>
class Consumer {
 public:
  __device__ Consumer(const Arguments& g, const Ring& ring)
      : g_(g),
        ring_(ring),
        group_(static_cast<int>(threadIdx.x) / kWarpgroup - 1),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        stores_(ring.base + kStores + group_ * 2 * kPieceBytes),
        factors_(ring.base + kFactors + group_ * 2 * kFactorBytes) {}

  // A tile is rounded when it is complete, and stored while the next one's products run.
  __device__ __forceinline__ void run() {
    const int steps = steps_of(g_);
    const bool hides = steps >= kPieces;
    Header last{};  // of which nothing is stored
    for (;;) {
      wait(ring_.full(), ring_.parity);
      const Header tile = ring_.get_header();
      if (tile.n == 0) break;
      if (!hides) store_all(last);
      last_ = 0;
      for (int step = 0; step < steps; ++step) {
        multiply(tile.n, step == 0);
        // Gate and up would take one stage more from those that are copied ahead.
        if constexpr (kGate == Gate::kBackward) hand_back();
        if (step < kPieces && hides) store(step, last);
        if constexpr (kGate != Gate::kBackward) hand_back();
      }
      const float factor =
          kGate != Gate::kNone && thread_ < tile.rows ? g_.weights[g_.choices[tile.row + thread_]] : 0;
      wait_products<0>();
      hold(sums_[0]);
      hold(sums_[1]);
      release(last_);
      round();
      if constexpr (kGate != Gate::kNone) {
        turn_ ^= 1;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(factors() + 4 * thread_), "f"(factor) : "memory");
      }
      last = tile;
    }
    store_all(last);
  }

 private:
  // The next stage's products, which run on.
  __device__ __forceinline__ void multiply(int n, bool first) {
    wait(ring_.full(), ring_.parity);
    if constexpr (kGather) fence_shared();  // of what threads copied
    const Operand own(ring_.bytes() + group_ * kBoxBytes), rows(ring_.bytes() + kMatrixBytes);
    visit_columns(n, [&]<int kN>() {
      begin_products();
#pragma unroll
      for (int i = 0; i < kStep / 16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          product_of_columns<kTranspose ? 0 : 1, kN>(
              sums_[half], own.at(half * kHalfBytes + (kTranspose ? 32 : 2 * kGroupBytes) * i), rows.at(32 * i),
              !first || i > 0);
    });
    commit_products();
    used_ = ring_.empty();
    ring_.advance();
  }
  // The stage before, whose products are done then.
  __device__ __forceinline__ void hand_back() {
    wait_products<1>();
    release(last_);
    last_ = used_;
  }

  // Tells both blocks that this warpgroup has used a stage; 0: none.
  __device__ void release(uint32_t empty) {
    if (empty != 0 && thread_ < kCluster) arrive_in_cluster(empty, static_cast<uint32_t>(thread_));
  }

  __device__ void round() {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kMostTokens / 4; ++i)
        rounded_[half][i] = pack(sums_[half][2 * i], sums_[half][2 * i + 1]);
  }

  // Backward, a piece's gate and up are the next stage.
  __device__ __forceinline__ void store_all(const Header& tile) {
    for (int piece = 0; piece < kPieces; ++piece) store(piece, tile);
  }
  __device__ __forceinline__ void store(int piece, const Header& tile) {
    if constexpr (kGate == Gate::kBackward) {
      if (tile.n == 0) return;
      wait(ring_.full(), ring_.parity);
      store_piece(piece, tile);
      sync_threads(1 + group_, kWarpgroup);  // of whom each has read its part of the stage
      release(ring_.empty());
      ring_.advance();
    } else {
      store_piece(piece, tile);
    }
  }
  // Through shared memory, where 16 rows have 64 columns of either half, to the rows' order: a thread has a chunk of 8
  // columns of either. Only the code that differs from piece to piece is there more than once.
  __device__ __forceinline__ void store_piece(int piece, const Header& tile) {
    if (piece * kPieceTokens >= tile.rows) return;
    const uint32_t to = stores_ + other_ * kPieceBytes;  // each has read what was there before the last piece
    other_ ^= 1;
    put(piece, chunk_of(to, lane() / 16 * 8 + lane() % 8, 2 * warp() + lane() / 8 % 2));
    sync_threads(1 + group_, kWarpgroup);
    const int in_piece = thread_ / 8, token = piece * kPieceTokens + in_piece, chunk = thread_ % 8;
    const uint32_t first = chunk_of(to, in_piece, chunk), second = first + kPieceTokens * 128;
    const int column = tile.column + 64 * group_ + 8 * chunk;
    const bool has_row = token < tile.rows;
    const int64_t row = tile.row + token;
    if constexpr (kGate == Gate::kForward) {
      if (has_row && column < g_.columns)
        store_gate_up(row, column, load_shared(first), load_shared(second), factor_of(token));
    } else if constexpr (kGate == Gate::kBackward) {
      store_gradients(row, has_row, column, first,
                      chunk_of(ring_.bytes() + group_ * kGateBoxBytes, in_piece, chunk), tile);
    } else {
      __nv_bfloat16* const d = g_.d + row * g_.columns + column;
      if (has_row && column < g_.columns) store_chunk(d, load_shared(first));
      if (has_row && column + kRowsOfMatrix < g_.columns) store_chunk(d + kRowsOfMatrix, load_shared(second));
    }
  }

  // Registers have no index at run time.
  __device__ __forceinline__ void put(int piece, uint32_t to) const {
    switch (piece) {
      case 0:
        return put<0>(to);
      case 1:
        return put<1>(to);
      case 2:
        return put<2>(to);
      case 3:
        return put<3>(to);
      case 4:
        return put<4>(to);
      case 5:
        return put<5>(to);
      case 6:
        return put<6>(to);
      default:
        return put<7>(to);
    }
  }
  template <int kPiece>
  __device__ __forceinline__ void put(uint32_t to) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      store_tiles_transposed(to + half * kPieceTokens * 128, rounded_[half] + 4 * kPiece);
  }

  __device__ static void store_chunk(__nv_bfloat16* to, const uint4& chunk) {
    *reinterpret_cast<uint4*>(to) = chunk;
  }
  __device__ uint32_t factors() const { return factors_ + turn_ * kFactorBytes; }
  __device__ float factor_of(int token) const {
    float factor;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(factor) : "r"(factors() + 4 * token) : "memory");
    return factor;
  }

  __device__ static uint32_t weighted_swiglu(uint32_t gates, uint32_t ups, float factor) {
    const float2 gate = unpack(gates), up = unpack(ups);
    return pack(factor * swiglu(gate.x, up.x), factor * swiglu(gate.y, up.y));
  }
  __device__ void store_gate_up(int64_t row, int column, const uint4& gates, const uint4& ups, float factor) const {
    if (g_.d != nullptr) {
      __nv_bfloat16* const to = g_.d + row * 2 * g_.columns + column;
      store_chunk(to, gates);
      store_chunk(to + g_.columns, ups);
    }
    const uint4 y{weighted_swiglu(gates.x, ups.x, factor), weighted_swiglu(gates.y, ups.y, factor),
                  weighted_swiglu(gates.z, ups.z, factor), weighted_swiglu(gates.w, ups.w, factor)};
    store_chunk(g_.y + row * g_.columns + column, y);
  }

  // The gradient of weight · swiglu to that of gate|up, and what this warpgroup has of the weight's. `from` and `gates`:
  // where the thread's chunk of the first half is, and gate's; gate's second half is two boxes further.
  __device__ __forceinline__ void store_gradients(int64_t row, bool has_row, int column, uint32_t from,
                                                  uint32_t gates, const Header& tile) const {
    float dot = 0;
    const float factor = has_row ? factor_of(static_cast<int>(row) - tile.row) : 0;
#pragma unroll 1
    for (int half = 0; half < 2; ++half)
      if (has_row && column + half * kRowsOfMatrix < g_.columns)
        store_gradient(row, column + half * kRowsOfMatrix, from + half * kPieceTokens * 128,
                       gates + half * 2 * kGateBoxBytes, factor, dot);
    for (int step = 1; step < 8; step *= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
    if (g_.dots != nullptr && has_row && thread_ % 8 == 0 && tile.column < g_.columns)
      g_.dots[row * 2 * ((g_.columns + kTileColumns - 1) / kTileColumns) + 2 * (tile.column / kTileColumns) +
              group_] = dot;
  }
  // Up is behind all four boxes of gate.
  __device__ __forceinline__ void store_gradient(int64_t row, int column, uint32_t from, uint32_t at_gates,
                                                 float factor, float& dot) const {
    const int64_t at = row * 2 * g_.columns + column;
    uint4 gates = load_shared(at_gates), ups = load_shared(at_gates + 4 * kGateBoxBytes), ys = load_shared(from);
    differentiate(gates.x, ups.x, ys.x, factor, dot);
    differentiate(gates.y, ups.y, ys.y, factor, dot);
    differentiate(gates.z, ups.z, ys.z, factor, dot);
    differentiate(gates.w, ups.w, ys.w, factor, dot);
    store_chunk(g_.d + at, gates);
    store_chunk(g_.d + at + g_.columns, ups);
    if (g_.y != nullptr) store_chunk(g_.y + row * g_.columns + column, ys);
  }
  // Gate, up and the gradient of weight · swiglu become their gradients, and weight · swiglu.
  __device__ __forceinline__ static void differentiate(uint32_t& gates, uint32_t& ups, uint32_t& ys, float factor,
                                                       float& dot) {
    const float2 gate = unpack(gates), up = unpack(ups), dy = unpack(ys);
    const SwigluBackward one = swiglu_backward(gate.x, up.x, factor * dy.x),
                         other = swiglu_backward(gate.y, up.y, factor * dy.y);
    gates = pack(one.dgate, other.dgate);
    ups = pack(one.dup, other.dup);
    ys = pack(factor * one.y, factor * other.y);
    dot += dy.x * one.y + dy.y * other.y;
  }

  __device__ int lane() const { return thread_ % 32; }
  __device__ int warp() const { return thread_ / 32; }  // of the warpgroup

  const Arguments& g_;
  Ring ring_;
  int group_, thread_, turn_ = 0, other_ = 0;
  uint32_t stores_, factors_, used_ = 0, last_ = 0;
  float sums_[2][kMostTokens / 2];
  uint32_t rounded_[2][kMostTokens / 4];
};

// Of each thread, so that neither side spills more than it must; 504 together.
template <Gate kGate>
constexpr int kProducerRegisters = kGate == Gate::kForward ? 56 : 40;
template <Gate kGate>
constexpr int kConsumerRegisters = (504 - kProducerRegisters<kGate>) / kConsumers;

template <bool kTranspose, bool kGather, Gate kGate>
__global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1) __cluster_dims__(kCluster, 1, 1)
    expert_product(const __grid_constant__ Arguments arguments) {
  extern __shared__ char memory[];
  const Ring ring = make_ring(memory, kGather ? 1 + kWarpgroup : 1);
  if (threadIdx.x < kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters<kGate>));
    if (kGather || threadIdx.x < 32) Producer<kTranspose, kGather, kGate>(arguments, ring, rank_in_cluster()).run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters<kGate>));
    Consumer<kTranspose, kGather, kGate>(arguments, ring).run();
  }
  sync_cluster();  // no block's memory goes while the other still copies to it or arrives there
}

template <bool kTranspose, bool kGather, Gate kGate>
void launch(const Arguments& arguments, int multiprocessors, cudaStream_t stream) {
  allow_scratch(expert_product<kTranspose, kGather, kGate>, kSharedBytes);
  const int blocks = multiprocessors / kCluster * kCluster;
  expert_product<kTranspose, kGather, kGate>
      <<<static_cast<unsigned>(blocks), (1 + kConsumers) * kWarpgroup, kSharedBytes, stream>>>(arguments);
}

}  // namespace

void launch_expert_product(const ExpertProductArguments& arguments, bool transpose, Gate gate, int multiprocessors,
                           cudaStream_t stream) {
  switch (gate) {
    case Gate::kForward:
      return launch<true, true, Gate::kForward>(arguments, multiprocessors, stream);
    case Gate::kBackward:
      return launch<false, true, Gate::kBackward>(arguments, multiprocessors, stream);
    case Gate::kNone:
      break;
  }
  (transpose ? launch<true, false, Gate::kNone> : launch<false, false, Gate::kNone>)(arguments, multiprocessors,
                                                                                   stream);
}

}  // namespace temper::backends::hopper
