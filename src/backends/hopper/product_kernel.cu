// Matrix products for Hopper whose sums go on over further, shallow pairs of operands: the updates of an
// adapter cost their operations and never pass d through memory by themselves.
// A block computes tiles of 128 x 256, each of its two warpgroups 64 rows, and walks along the depth in steps
// of 64; a third warpgroup copies operands in, four steps ahead. Two blocks with neighbouring rows form a
// cluster: each copies half of b's step into both, and waits only for the other, which the GPU starts together
// with it. Tiles are visited in groups of a few rows' tiles, so that
// operands are found in the cache. A tile is rounded when it is complete and stored, in four pieces, behind
// the first four steps of the next one.
// Swiglu may go with a product. Forward, a tile is 128 columns of gate and the same of up: a cluster's first
// block copies the former's operands, its second the latter's, and one thread has both sums. Backward, each
// piece's gate and up come through the ring as a step of their own.
#include <algorithm>

#include "backends/hopper/product_copies.h"
#include "backends/gpu/device_code.h"
#include "backends/gpu/swiglu_element.h"

namespace temper::backends::hopper {
namespace {

using namespace products;

template <bool kTransposeB, Gate kGate>
class Consumer {
 public:
  __device__ Consumer(const Arguments& g, const Ring& ring, uint32_t rank)
      : g_(g),
        ring_(ring),
        tiles_(g, rank),
        group_(static_cast<int>(threadIdx.x) / kWarpgroup - 1),
        thread_(threadIdx.x % kWarpgroup),
        store_(ring.base + kStores + (threadIdx.x / 32 - kWarpgroup / 32) * 2 * kStoreBytes) {}

  // A tile is rounded when it is complete, and stored while the next one's products run.
  __device__ void run() {
    Tile tile, last;
    bool more = tiles_.take(tile), any = false;
    while (more || any) {
      int step = 0;
      last_ = 0;
      if (any)
        for_each_piece([&]<int kPiece>() {
          if (more && hides(g_)) add<kStep / 16>(step++ == 0);
          store<kPiece>(last);
        });
      if (!more) break;
      int whole = steps_of(g_.depth);
      for_each_update(tile, [&](const auto& update) { whole += steps_of(update.depth) - 1; });
      for (; step < whole; ++step) add<kStep / 16>(step == 0);
      for_each_update(tile, [&](const auto& update) { add_last((update.depth - 1) % kStep / 16 + 1); });
      wait_products<0>();
      hold(sums_);
      release(last_);
      round(tile);
      last = tile;
      any = true;
      more = tiles_.take(tile);
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

  // The last step of an update, `count` · 16 deep.
  __device__ void add_last(int count) {
    switch (count) {
      case 1:
        return add<1>(false);
      case 2:
        return add<2>(false);
      case 3:
        return add<3>(false);
      default:
        return add<4>(false);
    }
  }

  template <class F>
  __device__ void for_each_update(const Tile& tile, F f) {
    for (int u = 0; u < g_.update_count; ++u)
      if (reaches<kGate>(g_, g_.updates[u], tile)) f(g_.updates[u]);
  }

  // Tells both blocks that this warpgroup has used a stage; 0: none.
  __device__ void release(uint32_t empty) {
    if (empty != 0 && thread_ < kCluster) arrive_in_cluster(empty, thread_);
  }

  template <class F>
  __device__ static void for_each_piece(F f) {
    f.template operator()<0>();
    f.template operator()<1>();
    f.template operator()<2>();
    f.template operator()<3>();
  }

  struct Matrix {
    __nv_bfloat16* memory;
    int64_t stride;
    __device__ Matrix from(int column) const { return {memory + column, stride}; }
  };

  // Sums, with the bias, to pairs of bfloat16.
  __device__ void round(const Tile& tile) {
    if (g_.bias != nullptr) {
      constexpr bool kForward = kGate == Gate::kForward;
#pragma unroll
      for (int part = 0; part < kPieces; ++part)
        add_bias(sums_ + 32 * part, tile.column + 64 * (kForward ? part % 2 : part),
                 kForward && part >= 2 ? g_.columns : 0);
    }
#pragma unroll
    for (int i = 0; i < kTileColumns / 4; ++i) rounded_[i] = pack(sums_[2 * i], sums_[2 * i + 1]);
  }

  // A quarter of what a tile stores. Of swiglu forward: gate, up, and swiglu of both in turn.
  template <int kPiece>
  __device__ void store(const Tile& tile) {
    const Matrix d{g_.d, g_.d_stride}, y{g_.y, g_.y_stride};
    if constexpr (kGate == Gate::kForward) {
      constexpr int kPart = kPiece % 2;
      const uint32_t *gates = rounded_ + 16 * kPart, *ups = gates + 32;
      const int column = tile.column + 64 * kPart;
      if constexpr (kPiece < 2) {
        store_block(0, tile, column, d, [&](int i) { return gates[i]; });
        store_block(1, tile, column, d.from(g_.columns), [&](int i) { return ups[i]; });
      } else {
        store_block(kPart, tile, column, y, [&](int i) { return swiglu_of(gates[i], ups[i]); });
      }
    } else {
      const uint32_t* rounded = rounded_ + 16 * kPiece;
      const int column = tile.column + 64 * kPiece;
      if constexpr (kGate == Gate::kBackward) {
        store_gradients(tile, column, d, rounded);
        if (g_.y != nullptr) store_y(tile, column, y);
        sync_threads(1 + group_, kWarpgroup);  // of whom each has read its rows of the stage
        release(ring_.empty());
        ring_.advance();
      } else {
        store_block(kPiece, tile, column, d, [&](int i) { return rounded[i]; });
      }
    }
  }

  __device__ static uint32_t swiglu_of(uint32_t gates, uint32_t ups) {
    const float2 gate = unpack(gates), up = unpack(ups);
    return pack(swiglu(gate.x, up.x), swiglu(gate.y, up.y));
  }

  // 64 columns of this warp's rows, of which a thread has sixteen pairs.
  template <class Pairs>
  __device__ void store_block(int block, const Tile& tile, int column, const Matrix& to, Pairs pairs) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const uint32_t tiles[] = {pairs(i), pairs(i + 1), pairs(i + 2), pairs(i + 3)};
      put(block, i / 4, tiles);
    }
    __syncwarp();
    write(block, tile, column, to);
  }

  // Of gate and up, which are the next stage.
  __device__ void store_gradients(const Tile& tile, int column, const Matrix& to, const uint32_t* dys) {
    wait(ring_.full(), ring_.parity);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t gates[4], ups[4];
      take_gate_up(i, gates, ups);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 gate = unpack(gates[k]), up = unpack(ups[k]), dy = unpack(dys[4 * i + k]);
        const SwigluBackward one = swiglu_backward(gate.x, up.x, dy.x),
                             other = swiglu_backward(gate.y, up.y, dy.y);
        gates[k] = pack(one.dgate, other.dgate);
        ups[k] = pack(one.dup, other.dup);
      }
      put(0, i, gates);
      put(1, i, ups);
    }
    __syncwarp();
    write(0, tile, column, to);
    write(1, tile, column, to.from(g_.columns));
  }

  __device__ void store_y(const Tile& tile, int column, const Matrix& to) {
    __syncwarp();  // of whom each has read the block
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t gates[4], ups[4];
      take_gate_up(i, gates, ups);
#pragma unroll
      for (int k = 0; k < 4; ++k) gates[k] = swiglu_of(gates[k], ups[k]);
      put(0, i, gates);
    }
    __syncwarp();
    write(0, tile, column, to);
  }

  // From the stage, in the order of the sums: 16 columns of this warp's rows.
  __device__ void take_gate_up(int i, uint32_t* gates, uint32_t* ups) {
    const uint32_t from =
        chunk_of(ring_.bytes() + group_ * kBoxBytes, 16 * warp() + lane() % 16, 2 * i + lane() / 16);
    load_tiles(from, gates);
    load_tiles(from + kBytesOfA, ups);
  }

  // Each warp has two blocks of shared memory, which turn 16 rows and 64 columns from the products' order
  // into that of rows. put: of 16 columns. write: by plain stores, which are not waited for.
  __device__ uint32_t block_at(int block) const { return store_ + block % 2 * kStoreBytes; }
  __device__ void put(int block, int i, const uint32_t* tiles) {
    store_tiles(chunk_of(block_at(block), lane() % 16, 2 * i + lane() / 16), tiles);
  }
  __device__ void write(int block, const Tile& tile, int first_column, const Matrix& to) {
    const int first_row = tile.row + 64 * group_ + 16 * warp(), column = first_column + 8 * (lane() % 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * i + lane() / 8;
      const uint4 chunk = load_shared(chunk_of(block_at(block), row, lane() % 8));
      if (first_row + row < g_.rows && column < g_.columns)
        *reinterpret_cast<uint4*>(to.memory + (first_row + row) * to.stride + column) = chunk;
    }
  }
  __device__ int lane() const { return static_cast<int>(thread_) % 32; }
  __device__ int warp() const { return static_cast<int>(thread_) / 32; }  // of the warpgroup

  // To a thread's sums of 64 columns of d that begin at `offset` + `column`.
  __device__ void add_bias(float* sums, int column, int offset) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const int at = column + 8 * (i / 4) + 2 * (lane() % 4);
      if (at >= g_.columns) continue;
      const auto two = *reinterpret_cast<const __nv_bfloat162*>(g_.bias + offset + at);
      sums[i] += __low2float(two);
      sums[i + 1] += __high2float(two);
    }
  }

  const Arguments& g_;
  Ring ring_;
  Tiles<kGate> tiles_;
  int group_;
  uint32_t thread_, store_, last_ = 0;
  float sums_[kTileColumns / 2];
  uint32_t rounded_[kTileColumns / 4];
};

template <bool kTransposeB, Gate kGate>
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
    if (threadIdx.x == 0) produce<kTransposeB, kGate>(arguments, ring, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Consumer<kTransposeB, kGate>(arguments, ring, rank).run();
  }
  sync_cluster();  // no block's memory goes while the other still copies to it or arrives there
}

template <bool kTransposeB, Gate kGate>
void launch(const Arguments& arguments, int multiprocessors, cudaStream_t stream) {
  allow_scratch(product_with_updates<kTransposeB, kGate>, kSharedBytes);
  const auto parts = [](int size, int part) { return (size + part - 1) / part; };
  const int pairs = parts(arguments.rows, kCluster * kTileRows) * parts(arguments.columns, kColumns<kGate>),
            blocks = kCluster * std::min(pairs, multiprocessors / kCluster);
  product_with_updates<kTransposeB, kGate>
      <<<static_cast<unsigned>(blocks), (1 + kConsumers) * kWarpgroup, kSharedBytes, stream>>>(arguments);
}

}  // namespace

void launch_product(const ProductArguments& arguments, bool transpose_b, Gate gate, int multiprocessors,
                    cudaStream_t stream) {
  switch (gate) {
    case Gate::kForward:
      return launch<true, Gate::kForward>(arguments, multiprocessors, stream);
    case Gate::kBackward:
      return launch<false, Gate::kBackward>(arguments, multiprocessors, stream);
    case Gate::kNone:
      break;
  }
  (transpose_b ? launch<true, Gate::kNone> : launch<false, Gate::kNone>)(arguments, multiprocessors, stream);
}

}  // namespace temper::backends::hopper
