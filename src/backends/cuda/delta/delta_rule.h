#pragma once
#include "backends/gpu/matrix_products.h"

// The gated delta rule in chunks on tensor cores, in five steps over chunks of 64 tokens. The letters are
// those of ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h. Forward: for all chunks at once (I + A)⁻¹ and
// the scores P (prepare), then along each document the states and Y (scan_states). Backward: both again,
// keeping the states and U; then along each document in reverse the gradients of states and of V
// (scan_gradients); then for all chunks at once those of Q, K, g and beta (chunk_gradients).
//
// Norms are never multiplied into q and k: with r_t = 1 / |k_t| the key r_t k_t stands in float32 factors of
// products with k as it is.
namespace temper::backends {

using Brain = __nv_bfloat16;

inline constexpr int kChunk = 64, kMostDim = 128;
inline constexpr int kWidePitch = kMostDim + 8, kSquarePitch = kChunk + 8;

struct DeltaChunk {
  int first, tokens;  // none in the list's padding
};
struct DeltaDocument {
  int first, tokens, first_chunk;
  int root;  // whether it continues none
  int next;  // another one that continues the same root, or -1; of a root: the first that continues it
};

// What prepare leaves of a chunk and a head: of each token, then of the whole chunk.
enum DeltaFactor { kKeyStart, kQueryStart, kKeyEnd, kBeta, kWhole, kFactors };

struct DeltaInput {
  const Brain *q, *k, *v;  // [tokens, key_heads, key_dim], twice; [tokens, heads, value_dim]
  int64_t q_stride, k_stride, v_stride;
  const float *g, *beta;  // [tokens, heads]
  int key_heads, heads, key_dim, value_dim;
  float scale, eps;
  int norms;
  int wide_slices;  // 64 values a block of the scans, not 32
  int chunk_count, document_count;
  const DeltaChunk* chunks;
  const DeltaDocument* documents;
  Brain *inverse, *scores;  // [chunks, heads, 64, 64]: (I + A)⁻¹ and scale P, except squares of 16 x 16
                            // right of the diagonal, which are never read
  float* factors;  // [chunks, heads, kFactors, 64]: e_t r_t, scale e_t / |q_t|, D_Lt r_t, beta_t; e_L

  __host__ __device__ int group() const { return heads / key_heads; }
  __device__ int64_t place(int chunk, int head) const { return int64_t{chunk} * heads + head; }
};

struct DeltaStates {
  const float* initial;  // [documents, heads, key_dim, value_dim], or null
  float* final_state;    // the same
  float* roots;          // room for the same, where a document continues another
  Brain* y;              // [tokens, heads, value_dim], or null
  // [chunks, heads, key_dim, value_dim] before each chunk, and U [tokens, heads, value_dim], or null.
  Brain *states, *updates;
};

struct DeltaGradients {
  const Brain *dy, *states, *updates;
  const float* dfinal;  // or null
  float* dinitial;      // or null
  float* roots;         // as in DeltaStates
  Brain *dstates,
      *w;  // like states and updates: behind each chunk; (I + A)⁻ᵀ dU. Null, and dv: dinitial alone
  Brain *dq, *dk, *dv;
  float *dg, *dbeta;
};

void prepare_delta(const DeltaInput& input, cudaStream_t stream);
void scan_delta_states(const DeltaInput& input, const DeltaStates& states, cudaStream_t stream);
void scan_delta_gradients(const DeltaInput& input, const DeltaGradients& gradients, cudaStream_t stream);
void delta_chunk_gradients(const DeltaInput& input, const DeltaGradients& gradients, cudaStream_t stream);
// Bytes of shared memory of a block, at most, where scans have `values` values a block.
constexpr size_t delta_scratch(int values) { return values == 64 ? 212 << 10 : 163 << 10; }

// `rows` of rows of up to kColumns elements, zeros beyond them and beyond `columns`, brought by kLoaders
// threads of which this is `thread`.
template <int kRows, int kColumns, int kLoaders, int kPitch>
__device__ void load_rows(Brain (&to)[kRows][kPitch], const Brain* from, int64_t stride, int rows,
                          int columns, int thread) {
  constexpr int kPacks = kColumns / 8, kStep = kLoaders / kPacks;
  static_assert(kLoaders % kPacks == 0 && kRows % kStep == 0);
  const int first = thread / kPacks, column = thread % kPacks * 8;
  const Brain* source = from + first * stride + column;
  if (column >= columns) rows = 0;
#pragma unroll
  for (int i = 0; i < kRows / kStep; ++i, source += kStep * stride) {
    const bool there = first + i * kStep < rows;
    load_chunk(shared_address(&to[first + i * kStep][column]), there ? source : from, there ? 16 : 0);
  }
}
// A matrix of 64 x 64 without the squares right of the diagonal.
template <int kLoaders>
__device__ void load_triangle(Brain (&to)[kChunk][kSquarePitch], const Brain* from, int thread) {
  constexpr int kPacks = kChunk / 8, kStep = kLoaders / kPacks;
  const int first = thread / kPacks, column = thread % kPacks * 8;
#pragma unroll
  for (int i = 0; i < kChunk / kStep; ++i) {
    const int row = first + i * kStep;
    if (column / 16 <= row / 16) load_chunk(shared_address(&to[row][column]), from + row * kChunk + column);
  }
}
template <int kLoaders>
__device__ void load_factors(float (&to)[kFactors][kChunk], const DeltaInput& a, int64_t place, int thread) {
  constexpr int kPacks = kFactors * kChunk / 4;
#pragma unroll
  for (int i = 0; i < (kPacks + kLoaders - 1) / kLoaders; ++i) {
    const int at = thread + i * kLoaders;
    if (at < kPacks)
      load_chunk(shared_address(&to[0][0] + 4 * at), a.factors + place * kFactors * kChunk + 4 * at);
  }
}

// sums[t] = Σ_{i ≤ t} g_i, by one warp, for two tokens of each lane. In double precision: differences of sums
// are decays, however long and strong the decay before them was.
__device__ inline void sum_gates(double (&sums)[kChunk], const float* g, int stride, int tokens) {
  const int t = 2 * lane();
  const double first = t < tokens ? g[int64_t{t} * stride] : 0,
               second = t + 1 < tokens ? g[int64_t{t + 1} * stride] : 0;
  double until = first + second;
  for (int step = 1; step < 32; step *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, until, step);
    if (lane() >= step) until += other;
  }
  double before = __shfl_up_sync(0xffffffffu, until, 1);
  if (lane() == 0) before = 0;
  sums[t] = before + first;
  sums[t + 1] = before + first + second;
}
__device__ inline float decay(double until, double from) { return expf(static_cast<float>(until - from)); }

// 1 / |row|, or 1 where rows are not normed.
__device__ inline float norm_of(const Brain (&row)[kWidePitch], const DeltaInput& a) {
  if (!a.norms) return 1;
  float squares = 0;
  for (int i = 0; i < kMostDim; i += 8) {
    float values[8];
    widen_all(load_pack<Brain, 8>(row + i), values);
    for (const float value : values) squares += value * value;
  }
  return 1 / sqrtf(squares + a.eps);
}

}  // namespace temper::backends
