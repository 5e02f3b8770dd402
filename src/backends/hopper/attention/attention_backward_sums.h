#pragma once
#include "backends/gpu/device_code.h"
#include "backends/hopper/attention/attention_backward_parts.h"

// The warpgroups of attention's backward kernel that compute.
namespace temper::backends::hopper {

// Rows of a warpgroup's 64 keys, on their way from registers to global memory through `own`, its half of the
// values' memory.
template <int kDim>
struct KeyRows {
  using L = Layout<kDim>;
  uint32_t own;
  int half, count;  // count: rows that are keys

  __device__ void store(const float (&sums)[kDim / 2], float scale, __nv_bfloat16* to, int64_t stride) const {
    const int thread = threadIdx.x % kWarpgroup, warp = uniform(thread / 32);
    const uint32_t row = threadIdx.x % 16;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        packed[i] = pack(sums[8 * step + 2 * i] * scale, sums[8 * step + 2 * i + 1] * scale);
      const uint32_t chunk = (step % 4 * 2 + threadIdx.x % 32 / 16) ^ (row % 8);
      store_tiles(own + step / 4 * L::kBlockBox + (warp * 16 + row) * 128 + chunk * 16, packed);
    }
    sync_threads(kOneConsumer + half, kWarpgroup);
    constexpr int kChunks = kDim / 8;  // of a row
    for (int i = thread; i < 64 * kChunks; i += kWarpgroup) {
      const int r = i / kChunks, chunk = i % kChunks;
      if (r >= count) break;
      *reinterpret_cast<uint4*>(to + r * stride + chunk * 8) =
          load_shared(chunk_of(own + chunk / 8 * L::kBlockBox, r, chunk % 8));
    }
    sync_threads(kOneConsumer + half, kWarpgroup);
  }
};

// A warpgroup that computes: 64 of the block's keys.
template <int kDim>
struct Consumer {
  using L = Layout<kDim>;
  static constexpr int kTile = L::kTile;

  const BackwardArguments& a;
  const Work<kTile>& work;
  const uint32_t base;
  const int half, thread, warp, lane;  // of the warpgroup
  Ring<kStagesQ> q;                    // the tile whose scores are next to be used
  Ring<kStagesDy> dy;
  uint32_t step_parity = 0;

  float scores[kTile / 2], dp[kTile / 2];
  float dk[kDim / 2], dv[kDim / 2];
  uint32_t probabilities[kTile / 4];

  __device__ Consumer(const BackwardArguments& arguments, const Work<kTile>& w, uint32_t shared)
      : a(arguments),
        work(w),
        base(shared),
        half(uniform(threadIdx.x / kWarpgroup - 1)),
        thread(threadIdx.x % kWarpgroup),
        warp(uniform(thread / 32)),
        lane(thread % 32) {}

  // One lane speaks for its warp: an arrival orders only what its own thread did, unless the warp has met.
  __device__ void release(uint32_t barrier) const {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  }

  // keysᵀ-by-queries products: scores from k and q, dp from v and dy.
  __device__ void begin_scores(float (&to)[kTile / 2], uint32_t keys, uint32_t queries) const {
    const Operand a(keys + half * (L::kBlockBox / 2)), b(queries);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const uint32_t box = step / 4, within = step % 4 * 32;
      product<0, 0>(to, a.at(box * L::kBlockBox + within), b.at(box * L::kTileBox + within), step != 0);
    }
    commit_products();
  }
  __device__ uint32_t q_tile(int stage) const { return base + L::kQ + stage * L::kQueryBytes; }
  __device__ uint32_t dy_tile(int stage) const { return base + L::kDy + stage * L::kQueryBytes; }

  // Probabilities, in float32 in `scores` and packed.
  __device__ void make_probabilities(int block, int tile) {
    const float scale = a.scale * kLog2E;
    const uint32_t logs = base + L::kLogs + q.stage * L::kRowBytes + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
      float low, high;
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(low), "=f"(high) : "r"(logs + i * 32));
      float* const s = scores + 4 * i;
      s[0] = power_of_2(s[0] * scale - low);
      s[1] = power_of_2(s[1] * scale - high);
      s[2] = power_of_2(s[2] * scale - low);
      s[3] = power_of_2(s[3] * scale - high);
    }
    mask(block, tile);
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i) probabilities[i] = pack(scores[2 * i], scores[2 * i + 1]);
  }

  // Zero where a query does not see a key.
  __device__ void mask(int block, int tile) {
    const int shift = work.document.keys - work.document.queries;
    const int first_key = block * kBlock, first_query = tile * kTile + shift;  // the last key that it sees
    const bool diagonal = first_key + kBlock - 1 > first_query;
    const bool edge = a.window > 0 && first_key <= first_query + kTile - 1 - a.window;
    if (!diagonal && !edge) return;
    const int window = a.window > 0 ? a.window : 1 << 30;
    const int ahead = first_query + lane % 4 * 2 - (first_key + half * 64 + warp * 16 + lane / 4);
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      const int distance = ahead + i / 4 * 8 + i % 2 - (i / 2 % 2) * 8;  // of the query behind the key
      if (distance < 0 || distance >= window) scores[i] = 0;
    }
  }

  // Two of them; large tiles leave no registers to keep them in float32.
  __device__ float2 probability(int pair) const {
    if constexpr (kTile == 64) return make_float2(scores[2 * pair], scores[2 * pair + 1]);
    const uint32_t packed = probabilities[pair];
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
  }

  // dS, in shared memory.
  __device__ void make_score_gradients() const {
    const uint32_t deltas = base + L::kDeltas + dy.stage * L::kRowBytes + lane % 4 * 8;
    const uint32_t row = lane % 16;  // of 16 keys
    const uint32_t to = score_tile() + half * (L::kBlockBox / 2) + (warp * 16 + row) * 128;
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float low, high;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(low), "=f"(high)
                     : "r"(deltas + (2 * step + i) * 32));
        const float* const d = dp + 8 * step + 4 * i;
        const float2 p = probability(4 * step + 2 * i), below = probability(4 * step + 2 * i + 1);
        packed[2 * i] = pack(p.x * (d[0] - low), p.y * (d[1] - high));
        packed[2 * i + 1] = pack(below.x * (d[2] - low), below.y * (d[3] - high));
      }
      const uint32_t box = step / 4, chunk = (step % 4 * 2 + lane / 16) ^ (row % 8);
      store_tiles(to + box * L::kBlockBox + chunk * 16, packed);
    }
  }
  __device__ uint32_t score_tile() const { return base + L::kScores + step_parity * L::kScoreBytes; }

  __device__ void add_dv() {
    const Operand b(dy_tile(dy.stage), L::kTileBox);
    begin_products();
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step)
      add_product<1>(dv, probabilities + 4 * step, b.at(step * 2048));
    commit_products();
  }
  __device__ void add_dk() {
    const Operand a(score_tile() + half * (L::kBlockBox / 2)), b(q_tile(q.stage), L::kTileBox);
    begin_products();
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step)
      product<0, 1>(dk, a.at(step / 4 * L::kBlockBox + step % 4 * 32), b.at(step * 2048), true);
    commit_products();
  }
  // This warpgroup's half: of columns where a tile has 64 queries, of queries where it has 128.
  __device__ void begin_dq(float (&dq)[32]) const {
    const Operand a(score_tile() + (kTile == 128 ? half * L::kBlockBox : 0));
    const Operand b(base + L::kK + (kTile == 64 ? half * L::kBlockBox : 0));
    begin_products();
#pragma unroll
    for (int step = 0; step < kBlock / 16; ++step)
      product<1, 1>(dq, a.at(step * 2048), b.at(step * 2048), step != 0);
    commit_products();
  }
  __device__ void hand_over(const float (&dq)[32]) {
    wait(base + L::kEmptyDq, step_parity ^ 1);
    const uint32_t to = base + L::kDq + half * (L::kDqBytes / 2) + thread * 16;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * (kWarpgroup * 16)),
                   "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                   : "memory");
    fence_shared();
    release(base + L::kFullDq + 8 * step_parity);
    step_parity ^= 1;
  }

  // One tile. On entry nothing is under way and its probabilities and dp are there; on exit, those of the
  // next.
  template <bool kLast>
  __device__ void step(int block, int next_tile) {
    add_dv();
    make_score_gradients();
    fence_shared();
    sync_threads(kAllConsumers, 2 * kWarpgroup);

    float dq[32];
    Ring<kStagesQ> next_q = q;
    next_q.advance();
    begin_dq(dq);
    wait_products<1>();  // dv: registers of its probabilities are free for the next scores
    release(base + L::kEmptyDy + 8 * dy.stage);
    if constexpr (!kLast) {
      wait(base + L::kFullQ + 8 * next_q.stage, next_q.phase);
      begin_scores(scores, base + L::kK, q_tile(next_q.stage));
    }
    add_dk();
    wait_products<kLast ? 1 : 2>();
    hold(dq);
    hand_over(dq);
    dy.advance();
    const uint32_t used_q = base + L::kEmptyQ + 8 * q.stage;
    q = next_q;
    if constexpr (!kLast) {
      wait(base + L::kFullDy + 8 * dy.stage, dy.phase);
      begin_scores(dp, base + L::kV, dy_tile(dy.stage));
      wait_products<2>();
      hold(scores);
      make_probabilities(block, next_tile);
    }
    wait_products<0>();
    if constexpr (!kLast) hold(dp);
    release(used_q);
  }

  __device__ void run() {
    for (int part = 0; part < work.blocks(); ++part) {
      const bool second = part == 1;
      const int block = work.block(second);
      const Range range = work.range(second);
      const int steps = range.size() * a.heads_per_key;
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) dk[i] = dv[i] = 0;
      wait(base + L::kFullK, part);
      if (steps > 0) {
        wait(base + L::kFullQ + 8 * q.stage, q.phase);
        begin_scores(scores, base + L::kK, q_tile(q.stage));
        wait(base + L::kFullV, part);
        wait(base + L::kFullDy + 8 * dy.stage, dy.phase);
        begin_scores(dp, base + L::kV, dy_tile(dy.stage));
        wait_products<0>();
        hold(scores);
        hold(dp);
        make_probabilities(block, work.tile(range, second, 0));
        int place = 0;
        for (int i = 1; i < steps; ++i) {
          if (++place == range.size()) place = 0;
          step<false>(block, work.tile(range, second, place));
        }
        step<true>(block, 0);
        hold(dk);
        hold(dv);
      } else {
        wait(base + L::kFullV, part);
      }
      sync_threads(kOneConsumer + half, kWarpgroup);  // none reads the values any more
      const int first = block * kBlock + half * 64;
      const int64_t row = work.document.key + first, column = int64_t{work.item.kv_head} * kDim;
      const KeyRows<kDim> rows{base + L::kV + half * (L::kBlockBox / 2), half, work.document.keys - first};
      rows.store(dv, 1, a.dv + row * a.dv_stride + column, a.dv_stride);
      rows.store(dk, a.scale, a.dk + row * a.dk_stride + column, a.dk_stride);
      fence_shared();
      arrive(base + L::kEmptyKeys);
    }
  }
};

}  // namespace temper::backends::hopper
