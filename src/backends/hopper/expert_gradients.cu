// Gradients of experts' matrices for Hopper: sums over an expert's rows, which only the GPU knows.
// A block has tiles of 256 columns of `rows` and 128 of `gathered`, each of its two warpgroups half of the tile's
// rows, and walks along the expert's rows in steps of 64; a third warpgroup copies `rows` in, four steps ahead, and
// gathers the others. Two blocks with neighbouring columns of `gathered` form a cluster: each copies half of the step
// of `rows` into both. Rows of other experts never come in: of an expert's last step its own are copied one by one,
// and the others are zeros.
#include <algorithm>

#include "backends/gpu/device_code.h"
#include "backends/hopper/expert_copies.h"
#include "backends/hopper/expert_gradients.h"

namespace temper::backends::hopper {
namespace {

using namespace experts;
using Arguments = ExpertGradientArguments;

constexpr int kColumnsOfRows = 256, kColumnsGathered = 128;
constexpr int kDone = -1;

// What a block's consumers compute next; `count` rows, kDone: nothing is left.
struct Work {
  int expert, column, gathered_column, count;
  __device__ static Work from(const Header& h) { return {h.row, h.rows, h.column, h.n}; }
  __device__ Header header() const { return {expert, column, gathered_column, count}; }
};

// By four warps.
class GradientProducer {
 public:
  __device__ GradientProducer(const Arguments& g, const Ring& ring, uint32_t rank)
      : g_(g), ring_(ring), rank_(static_cast<int>(rank)), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    const int across = (g_.columns + kColumnsOfRows - 1) / kColumnsOfRows,
              along = (g_.gathered_columns + kCluster * kColumnsGathered - 1) / (kCluster * kColumnsGathered);
    const int clusters = static_cast<int>(gridDim.x) / kCluster;
    for (int next = static_cast<int>(blockIdx.x) / kCluster; next < g_.experts * across * along; next += clusters) {
      const int expert = next / (across * along), in_expert = next % (across * along);
      const int first = g_.starts[expert], count = g_.starts[expert + 1] - first;
      if (count == 0 && g_.accumulate) continue;
      const Work work{expert, in_expert / along * kColumnsOfRows,
                      (in_expert % along * kCluster + rank_) * kColumnsGathered, count};
      find_tokens(first, count, 0);
      int row = 0;
      do {
        wait(ring_.empty(), ring_.parity ^ 1);
        if (thread_ == 0) {
          if (row == 0) ring_.set_header(work.header());
          send_whole_step(work, first + row, count - row);
        }
        if (count - row < kStep) send_last_rows(work, first + row, count - row);
        send_gathered(work, count - row);
        row += kStep;
        find_tokens(first, count, row);
        ring_.advance();
      } while (row < count);
    }
    wait(ring_.empty(), ring_.parity ^ 1);
    if (thread_ == 0) {
      ring_.set_header(Work{0, 0, 0, kDone}.header());
      arrive(ring_.full());
    }
    arrive_with_chunks(ring_.full());
  }

 private:
  static constexpr int kEach = kStep / 16;  // rows of a step that a thread copies a chunk of

  // Half of a step of `rows`, for both blocks; the other block copies the other half.
  __device__ void send_whole_step(const Work& work, int row, int left) const {
    if (left < kStep) return arrive(ring_.full());
    expect_bytes(ring_.full(), kMatrixBytes);
    for (int box = 2 * rank_; box < 2 * rank_ + 2; ++box)
      load_box_of_two(ring_.bytes() + box * kBoxBytes, g_.rows, ring_.full(), work.column + 64 * box, row);
  }
  __device__ void send_last_rows(const Work& work, int row, int left) const {
#pragma unroll 1
    for (int i = 0; i < kEach; ++i) {
      const int in_step = thread_ / 8 + 16 * i;
#pragma unroll
      for (int box = 0; box < 4; ++box) {
        const int column = work.column + 64 * box + thread_ % 8 * 8;
        const bool inside = in_step < left && column < g_.columns;
        const __nv_bfloat16* const from =
            inside ? g_.row_data + int64_t{row + in_step} * g_.columns + column : g_.row_data;
        load_chunk(chunk_of(ring_.bytes() + box * kBoxBytes, in_step, thread_ % 8), from, inside ? 16 : 0);
      }
    }
  }

  __device__ void find_tokens(int first, int count, int row) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = row + thread_ / 8 + 16 * i;
      const int place = first + at;
      tokens_[i] = at >= count ? 0 : g_.tokens == nullptr ? place : g_.tokens[place];
    }
  }
  __device__ void send_gathered(const Work& work, int left) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int in_step = thread_ / 8 + 16 * i;
#pragma unroll
      for (int box = 0; box < 2; ++box) {
        const int column = work.gathered_column + 64 * box + thread_ % 8 * 8;
        const bool inside = in_step < left && column < g_.gathered_columns;
        const __nv_bfloat16* const from =
            inside ? g_.gathered + int64_t{tokens_[i]} * g_.gathered_columns + column : g_.gathered;
        load_chunk(chunk_of(ring_.bytes() + kMatrixBytes + box * kBoxBytes, in_step, thread_ % 8), from,
                   inside ? 16 : 0);
      }
    }
    arrive_with_chunks(ring_.full());
  }

  const Arguments& g_;
  Ring ring_;
  int rank_, thread_;
  int tokens_[kEach];
};

// A warpgroup's piece of d, 64 rows of 128 bytes, twice.
constexpr int kPieceBytes = 64 * 128, kSharedBytes = kStores + kConsumers * 2 * kPieceBytes + kGroupBytes;

// Sums that are rounded to bfloat16 are stored behind the first steps of the next tile, others at once. What is
// there is added to the former in registers, before they are rounded, to the latter in memory.
template <bool kTransposed, class T>
class GradientConsumer {
 public:
  __device__ GradientConsumer(const Arguments& g, const Ring& ring)
      : g_(g),
        ring_(ring),
        group_(static_cast<int>(threadIdx.x) / kWarpgroup - 1),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup) {}

  __device__ void run() {
    Work last{};
    bool any = false;
    for (;;) {
      wait(ring_.full(), ring_.parity);
      const Work work = Work::from(ring_.get_header());
      if (work.count == kDone) break;
      last_ = 0;
      const int steps = max(1, (work.count + kStep - 1) / kStep);
      const bool hides = steps > kPieces;
      for (int step = 0; step < steps; ++step) {
        add(step == 0, work.count - step * kStep);
        if constexpr (kRounds) {
          if (any && hides && step < kPieces) store_rounded(step, last);
          if (g_.accumulate && hides && step == kPieces) load_before(work);
        }
        hand_back();
      }
      if constexpr (kRounds) {
        if (any && !hides) store_all(last);
        if (g_.accumulate && !hides) load_before(work);
      }
      wait_products<0>();
#pragma unroll
      for (int part = 0; part < kParts; ++part) hold(sums_[part]);
      release(last_);
      if constexpr (kRounds) {
        round();
        last = work;
        any = true;
      } else {
        store_sums(work);
      }
    }
    if constexpr (kRounds)
      if (any) store_all(last);
    if (thread_ == 0) wait_stores();
  }

 private:
  // Of a tile's sums a warpgroup has [2 x 64, 128], or transposed [64, 256].
  static constexpr int kParts = kTransposed ? 1 : 2, kSums = 128 / kParts;
  static constexpr bool kRounds = sizeof(T) == sizeof(__nv_bfloat16);
  static constexpr int kPieceColumns = 128 / sizeof(T), kPieces = 256 / kPieceColumns, kPerPart = kPieces / kParts;

  __device__ void add(bool first, int left) {
    wait(ring_.full(), ring_.parity);
    fence_shared();  // of what threads copied
    if (left > 48)
      multiply<4>(first);
    else if (left > 32)
      multiply<3>(first);
    else if (left > 16)
      multiply<2>(first);
    else
      multiply<1>(first);  // of an expert without rows: zeros
    used_ = ring_.empty();
    ring_.advance();
  }
  // The stage before, whose products are done then.
  __device__ void hand_back() {
    wait_products<1>();
    release(last_);
    last_ = used_;
  }
  template <int kCount>
  __device__ void multiply(bool first) {
    const uint32_t rows = ring_.bytes(), gathered = rows + kMatrixBytes;
    const Operand a(kTransposed ? gathered + group_ * kBoxBytes : rows + 2 * group_ * kBoxBytes),
        b(kTransposed ? rows : gathered, kBoxBytes);
    begin_products();
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        product<1, 1>(sums_[part], a.at(part * kBoxBytes + 2 * kGroupBytes * i), b.at(2 * kGroupBytes * i),
                      !first || i > 0);
    commit_products();
  }
  __device__ void release(uint32_t empty) {
    if (empty != 0 && thread_ < kCluster) arrive_in_cluster(empty, static_cast<uint32_t>(thread_));
  }

  // A piece's place in d, and the shared memory through which it goes.
  __device__ void begin_piece() const {
    if (thread_ == 0) wait_stores_read<1>();
    sync_threads(1 + group_, kWarpgroup);
  }
  __device__ uint32_t buffer(int piece) const {
    return ring_.base + kStores + (2 * group_ + piece % 2) * kPieceBytes;
  }
  __device__ void end_piece(const Work& work, int piece) const {
    fence_shared();
    sync_threads(1 + group_, kWarpgroup);
    if (thread_ != 0) return;
    const int x = (kTransposed ? work.column : work.gathered_column) + piece % kPerPart * kPieceColumns,
              y = kTransposed ? work.gathered_column + 64 * group_
                              : work.column + 128 * group_ + 64 * (piece / kPerPart);
    if (!kRounds && g_.accumulate)
      add_box(g_.boxes, buffer(piece), x, y, work.expert);
    else
      store_box(g_.boxes, buffer(piece), x, y, work.expert);
    commit_stores();
  }

  // What is in d, in pairs, where its sums are going to be.
  __device__ __forceinline__ void load_before(const Work& work) {
    const int high = kTransposed ? g_.gathered_columns : g_.columns,
              wide = kTransposed ? g_.columns : g_.gathered_columns;
    const int lane = thread_ % 32;
    const int first_row = (kTransposed ? work.gathered_column + 64 * group_ : work.column + 128 * group_) +
                          16 * (thread_ / 32) + lane / 4,
              first_column = (kTransposed ? work.column : work.gathered_column) + 2 * (lane % 4);
    const auto* const matrix = static_cast<const __nv_bfloat16*>(g_.d) + int64_t{work.expert} * high * wide;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        const int row = first_row + 64 * part + 8 * below, end = row < high ? wide : 0;
        const __nv_bfloat16* const from = matrix + int64_t{row} * wide + first_column;
#pragma unroll
        for (int i = 0; i < kSums / 4; ++i)
          rounded_[part * kSums / 2 + 2 * i + below] =
              first_column + 8 * i < end ? *reinterpret_cast<const uint32_t*>(from + 8 * i) : 0;
      }
  }
  __device__ void round() {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < kSums / 2; ++i) {
        uint32_t& to = rounded_[part * kSums / 2 + i];
        const float2 before = g_.accumulate ? unpack(to) : float2{};
        to = pack(before.x + sums_[part][2 * i], before.y + sums_[part][2 * i + 1]);
      }
  }
  __device__ void store_all(const Work& work) const {
    for (int piece = 0; piece < kPieces; ++piece) store_rounded(piece, work);
  }
  // Registers have no index at run time.
  __device__ void store_rounded(int piece, const Work& work) const {
    begin_piece();
    switch (piece) {
      case 0:
        put_rounded<0>();
        break;
      case 1:
        put_rounded<1>();
        break;
      case 2:
        put_rounded<2>();
        break;
      default:
        put_rounded<3>();
    }
    end_piece(work, piece);
  }
  template <int kPiece>
  __device__ void put_rounded() const {
    const int lane = thread_ % 32, warp = thread_ / 32;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_tiles(chunk_of(buffer(kPiece), 16 * warp + lane % 16, 2 * i + lane / 16),
                  rounded_ + 16 * kPiece + 4 * i);
  }
  __device__ __forceinline__ void store_sums(const Work& work) const {
    const int lane = thread_ % 32, row = 16 * (thread_ / 32) + lane / 4;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      begin_piece();
      const float* const sums = sums_[piece / kPerPart] + 16 * (piece % kPerPart);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int below = 0; below < 2; ++below) {
          const uint32_t to =
              chunk_of(buffer(piece), row + 8 * below, 2 * i + lane % 4 / 2) + lane % 2 * 2 * sizeof(float);
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(sums[4 * i + 2 * below]),
                       "f"(sums[4 * i + 2 * below + 1])
                       : "memory");
        }
      end_piece(work, piece);
    }
  }

  const Arguments& g_;
  Ring ring_;
  int group_, thread_;
  uint32_t used_ = 0, last_ = 0;
  float sums_[kParts][kSums];
  uint32_t rounded_[kRounds ? 64 : 1];
};

template <bool kTransposed, class T>
__global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1) __cluster_dims__(kCluster, 1, 1)
    expert_gradients(const __grid_constant__ Arguments arguments) {
  extern __shared__ char memory[];
  const Ring ring = make_ring(memory, 1 + kWarpgroup);
  if (threadIdx.x < kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    GradientProducer(arguments, ring, rank_in_cluster()).run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    GradientConsumer<kTransposed, T>(arguments, ring).run();
  }
  sync_cluster();  // no block's memory goes while the other still copies to it or arrives there
}

template <bool kTransposed, class T>
void launch(const Arguments& arguments, int multiprocessors, cudaStream_t stream) {
  allow_scratch(expert_gradients<kTransposed, T>, kSharedBytes);
  const int blocks = multiprocessors / kCluster * kCluster;
  expert_gradients<kTransposed, T>
      <<<static_cast<unsigned>(blocks), (1 + kConsumers) * kWarpgroup, kSharedBytes, stream>>>(arguments);
}

}  // namespace

void launch_expert_gradients(const ExpertGradientArguments& arguments, bool transposed, int multiprocessors,
                             cudaStream_t stream) {
  if (arguments.bfloat16)
    (transposed ? launch<true, __nv_bfloat16> : launch<false, __nv_bfloat16>)(arguments, multiprocessors,
                                                                                   stream);
  else
    (transposed ? launch<true, float> : launch<false, float>)(arguments, multiprocessors, stream);
}

}  // namespace temper::backends::hopper
