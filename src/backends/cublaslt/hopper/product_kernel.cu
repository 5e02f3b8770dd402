// Matrix products for Hopper whose sums go on over further, shallow pairs of operands: the updates of an
// adapter cost their operations and never pass d through memory by themselves.
// A block computes tiles of 128 x 256, each of its two warpgroups 64 rows, and walks along the depth in steps
// of 64; a third warpgroup copies operands in, four steps ahead. Two blocks with neighbouring rows form a
// cluster: each copies half of b's step into both. Tiles are visited in groups of a few rows' tiles, so that
// operands are found in the cache.
#include <algorithm>

#include "backends/cublaslt/hopper/product_kernel.h"
#include "backends/gpu.h"
#include "backends/hopper_copies.h"
#include "backends/hopper_products.h"

namespace temper::backends::hopper {
namespace {

using Arguments = ProductArguments;

constexpr int kCluster = 2, kWarpgroup = 128, kConsumers = 2, kStages = 4;
constexpr int kBoxBytes = 64 * 128;  // of 64 rows
constexpr int kBytesOfA = kTileRows / 64 * kBoxBytes, kBytesOfB = kTileColumns / 64 * kBoxBytes,
              kStageBytes = kBytesOfA + kBytesOfB;
constexpr int kStores = kStages * kStageBytes;  // each warp's 16 rows of d, twice, on their way to memory
constexpr int kStoreBytes = 16 * 128;
constexpr int kBarriers = kStores + kConsumers * 4 * 2 * kStoreBytes;
constexpr int kSharedBytes = kBarriers + 2 * kStages * 8 + kGroupBytes;  // begins at a multiple of that
constexpr int kRowsInGroup = 8;                                          // of pairs of tiles

// Where the stages' copies and the warpgroups meet. A stage is full when its bytes are there, and empty when
// the warpgroups of both blocks have used what was copied into both.
struct Ring {
  uint32_t base;
  int stage = 0;
  uint32_t parity = 0;

  __device__ uint32_t bytes() const { return base + stage * kStageBytes; }
  __device__ uint32_t full() const { return base + kBarriers + 8 * stage; }
  __device__ uint32_t empty() const { return full() + 8 * kStages; }
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Tile {
  int row, column;
};

// The tiles of a block, one after the other.
class Tiles {
 public:
  __device__ Tiles(const Arguments& g, uint32_t rank)
      : pairs_((g.rows + kCluster * kTileRows - 1) / (kCluster * kTileRows)),
        columns_((g.columns + kTileColumns - 1) / kTileColumns),
        rank_(static_cast<int>(rank)),
        next_(static_cast<int>(blockIdx.x) / kCluster) {}

  __device__ bool take(Tile& tile) {
    if (next_ >= pairs_ * columns_) return false;
    const int group = next_ / (kRowsInGroup * columns_), first = group * kRowsInGroup,
              height = min(kRowsInGroup, pairs_ - first), in_group = next_ - first * columns_;
    tile.row = ((first + in_group % height) * kCluster + rank_) * kTileRows;
    tile.column = in_group / height * kTileColumns;
    next_ += static_cast<int>(gridDim.x) / kCluster;
    return true;
  }

 private:
  int pairs_, columns_, rank_, next_;
};

__device__ inline int steps_of(int depth) { return (depth + kStep - 1) / kStep; }
__device__ inline bool reaches(const Arguments::Update& update, const Tile& tile) {
  return update.column < tile.column + kTileColumns && tile.column < update.column + update.columns;
}

// Copies of one step into the ring's next stage. `column`: of b.
template <bool kTransposeB>
__device__ inline void send(Ring& ring, uint32_t rank, const CUtensorMap& a, const CUtensorMap& b, int row,
                            int column, int depth) {
  wait(ring.empty(), ring.parity ^ 1);
  const uint32_t to = ring.bytes(), barrier = ring.full();
  const int half = static_cast<int>(rank) * kRowsOfB;
  expect_bytes(barrier, kStageBytes);
  load_box(to, a, barrier, depth, row);
  const uint32_t to_b = to + kBytesOfA + rank * (kBytesOfB / kCluster);
  if constexpr (kTransposeB) {
    load_box_of_two(to_b, b, barrier, depth, column + half);
  } else {
    for (int box = 0; box < 2; ++box)
      load_box_of_two(to_b + box * kBoxBytes, b, barrier, column + half + 64 * box, depth);
  }
  ring.advance();
}

// All whole steps come first, then the last of each update, of which kTail · 16 are used.
template <bool kTransposeB>
__device__ void produce(const Arguments& g, Ring ring, uint32_t rank) {
  Tiles tiles(g, rank);
  for (Tile tile; tiles.take(tile);) {
    for (int depth = 0; depth < g.depth; depth += kStep)
      send<kTransposeB>(ring, rank, g.a, g.b, tile.row, tile.column, depth);
    const auto send_updates = [&](bool last) {
      for (int u = 0; u < g.update_count; ++u) {
        const Arguments::Update& update = g.updates[u];
        if (!reaches(update, tile)) continue;
        const int begin_of_last = (steps_of(update.depth) - 1) * kStep,
                  end = last ? update.depth : begin_of_last;
        for (int depth = last ? begin_of_last : 0; depth < end; depth += kStep)
          send<kTransposeB>(ring, rank, update.a, update.b, tile.row, tile.column - update.column, depth);
      }
    };
    send_updates(false);
    send_updates(true);
  }
}

template <bool kTransposeB, int kTail>
class Consumer {
 public:
  __device__ Consumer(const Arguments& g, const Ring& ring, uint32_t rank)
      : g_(g),
        ring_(ring),
        tiles_(g, rank),
        group_(static_cast<int>(threadIdx.x) / kWarpgroup - 1),
        thread_(threadIdx.x % kWarpgroup),
        store_(ring.base + kStores + (threadIdx.x / 32 - kWarpgroup / 32) * 2 * kStoreBytes) {}

  __device__ void run() {
    for (Tile tile; tiles_.take(tile);) {
      int whole = steps_of(g_.depth), tails = 0;
      for (int u = 0; u < g_.update_count; ++u)
        if (reaches(g_.updates[u], tile)) {
          whole += steps_of(g_.updates[u].depth) - 1;
          ++tails;
        }
      last_ = 0;
      for (int step = 0; step < whole; ++step) add<kStep / 16>(step == 0);
      for (int step = 0; step < tails; ++step) add<kTail>(false);
      wait_products<0>();
      hold(sums_);
      release(last_);
      store(tile);
    }
  }

 private:
  // The next stage's products, of kCount · 16 along the sum. They run on while the stage before is handed
  // back.
  template <int kCount>
  __device__ void add(bool first) {
    wait(ring_.full(), ring_.parity);
    const Operand a(ring_.bytes() + group_ * kBoxBytes),
        b(ring_.bytes() + kBytesOfA, kTransposeB ? 0 : kBoxBytes);
    begin_products();
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      product<0, kTransposeB ? 0 : 1>(sums_, a.at(32 * i), b.at((kTransposeB ? 32 : 2 * kGroupBytes) * i),
                                      !first || i > 0);
    commit_products();
    wait_products<1>();
    release(last_);
    last_ = ring_.empty();
    ring_.advance();
  }

  // Tells both blocks that this warpgroup has used a stage; 0: none.
  __device__ void release(uint32_t empty) {
    if (empty != 0 && thread_ < kCluster) arrive_in_cluster(empty, thread_);
  }

  // Each warp stores its 16 rows, 64 columns at a time, which shared memory turns from the products' order
  // into that of rows. By plain stores: nobody waits for them.
  __device__ void store(const Tile& tile) {
    const int lane = static_cast<int>(thread_) % 32, row = lane % 16;
    const int first_row = tile.row + 64 * group_ + 16 * (static_cast<int>(thread_) / 32);
#pragma unroll
    for (int part = 0; part < kTileColumns / 64; ++part) {
      const uint32_t memory = store_ + part % 2 * kStoreBytes;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float* const sums = sums_ + 32 * part + 8 * i;
        if (g_.bias != nullptr) add_bias(sums, tile.column + 64 * part + 16 * i + 2 * (lane % 4));
        const uint32_t packed[] = {pack(sums[0], sums[1]), pack(sums[2], sums[3]), pack(sums[4], sums[5]),
                                   pack(sums[6], sums[7])};
        store_tiles(chunk_of(memory, row, 2 * i + lane / 16), packed);
      }
      __syncwarp();
      const int column = tile.column + 64 * part + 8 * (lane % 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int its_row = 4 * i + lane / 8;
        const uint4 chunk = load_shared(chunk_of(memory, its_row, lane % 8));
        if (first_row + its_row < g_.rows && column < g_.columns)
          *reinterpret_cast<uint4*>(g_.d + (first_row + its_row) * g_.d_stride + column) = chunk;
      }
    }
  }

  // To eight sums of a thread, in columns `column`, + 1, + 8 and + 9.
  __device__ void add_bias(float* sums, int column) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int at = column + i / 4 * 8;
      if (at >= g_.columns) continue;
      const auto two = *reinterpret_cast<const __nv_bfloat162*>(g_.bias + at);
      sums[i] += __low2float(two);
      sums[i + 1] += __high2float(two);
    }
  }

  const Arguments& g_;
  Ring ring_;
  Tiles tiles_;
  int group_;
  uint32_t thread_, store_, last_ = 0;
  float sums_[kTileColumns / 2];
};

template <bool kTransposeB, int kTail>
__global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1) __cluster_dims__(kCluster, 1, 1)
    product_with_updates(const __grid_constant__ Arguments arguments) {
  extern __shared__ char memory[];
  Ring ring{(shared_address(memory) + kGroupBytes - 1) / kGroupBytes * kGroupBytes};
  const uint32_t rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage, ring.advance()) {
      init_barrier(ring.full(), 1);
      init_barrier(ring.empty(), kCluster * kConsumers);
    }
    fence_barriers();
  }
  ring.stage = 0;
  ring.parity = 0;
  sync_cluster();
  if (threadIdx.x < kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) produce<kTransposeB>(arguments, ring, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Consumer<kTransposeB, kTail>(arguments, ring, rank).run();
  }
  sync_cluster();  // no block's memory goes while the other still copies to it or arrives there
}

template <bool kTransposeB, int kTail>
void launch(const Arguments& arguments, int multiprocessors, cudaStream_t stream) {
  allow_scratch(product_with_updates<kTransposeB, kTail>, kSharedBytes);
  const auto parts = [](int size, int part) { return (size + part - 1) / part; };
  const int pairs = parts(arguments.rows, kCluster * kTileRows) * parts(arguments.columns, kTileColumns),
            blocks = kCluster * std::min(pairs, multiprocessors / kCluster);
  product_with_updates<kTransposeB, kTail>
      <<<static_cast<unsigned>(blocks), (1 + kConsumers) * kWarpgroup, kSharedBytes, stream>>>(arguments);
}

template <bool kTransposeB>
void launch_with_tail(int tail, const Arguments& arguments, int multiprocessors, cudaStream_t stream) {
  switch (tail) {
    case 1:
      return launch<kTransposeB, 1>(arguments, multiprocessors, stream);
    case 2:
      return launch<kTransposeB, 2>(arguments, multiprocessors, stream);
    case 3:
      return launch<kTransposeB, 3>(arguments, multiprocessors, stream);
    default:
      return launch<kTransposeB, 4>(arguments, multiprocessors, stream);
  }
}

// How many products of 16 the longest last step of an update takes.
int tail_of(const Arguments& arguments) {
  int tail = 0;
  for (int u = 0; u < arguments.update_count; ++u)
    tail = std::max(tail, ((arguments.updates[u].depth - 1) % kStep + 16) / 16);
  return tail;
}

}  // namespace

void launch_product(const ProductArguments& arguments, bool transpose_b, int multiprocessors,
                    cudaStream_t stream) {
  (transpose_b ? launch_with_tail<true> : launch_with_tail<false>)(tail_of(arguments), arguments,
                                                                   multiprocessors, stream);
}

}  // namespace temper::backends::hopper
