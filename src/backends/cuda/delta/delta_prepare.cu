// Of each chunk and key head, for its value heads: (I + A)⁻¹, the scores, and factors of the scans.
#include "backends/cuda/delta/delta_rule.h"

namespace temper::backends {
namespace {

constexpr int kPrepareThreads = 128;
constexpr int kTiles = kChunk / 8;

struct Shared {
  union {
    struct {
      Brain q[kChunk][kWidePitch], k[kChunk][kWidePitch];
    };
    float matrix[2][kChunk][kChunk + 4];  // A of two heads, once products of q and k are there
  };
  double sums[2][kChunk];
  float beta[2][kChunk], q_norms[kChunk], k_norms[kChunk];
};

// Rows 16 warp to 16 warp + 15 of q kᵀ and k kᵀ, up to the diagonal.
struct Products {
  float qk[kTiles][4] = {}, kk[kTiles][4] = {};

  __device__ Products(const Shared& s, int warp) {
    for (int k = 0; k < kMostDim; k += 16) {
      uint32_t a[4], c[4];
      view(s.q).left(a, 16 * warp, k);
      view(s.k).left(c, 16 * warp, k);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        if (n > 2 * warp) continue;
        uint32_t b[4];
        view(s.k).right_turned(b, k, 8 * n);
        multiply(qk[n], a, b[0], b[1]);
        multiply(qk[n + 1], a, b[2], b[3]);
        multiply(kk[n], c, b[0], b[1]);
        multiply(kk[n + 1], c, b[2], b[3]);
      }
    }
  }
};

__device__ void write_matrices(Shared& s, int half, const Products& p, const DeltaInput& a, int64_t place) {
  const int warp = threadIdx.x / 32;
  const double* const sums = s.sums[half];
#pragma unroll
  for (int first = 0; first < kTiles; first += 4) {
    if (first > 2 * warp + 1) continue;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int t = 16 * warp + sum_row(i);
      uint32_t scores[4];
#pragma unroll
      for (int n = first; n < first + 4; ++n) {
        float pair[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int from = 8 * n + sum_column(j);
          const float along = from <= t ? decay(sums[t], sums[from]) * s.k_norms[from] : 0.f;
          pair[j] = a.scale * along * p.qk[n][i + j] * s.q_norms[t];
          s.matrix[half][t][from] = from < t ? s.beta[half][t] * along * p.kk[n][i + j] * s.k_norms[t] : 0.f;
        }
        scores[n - first] = pair_of(pair[0], pair[1]);
      }
      turn_quads(scores);
      *reinterpret_cast<uint4*>(a.scores + (place * kChunk + t) * kChunk + 8 * (first + lane() % 4)) = {
          scores[0], scores[1], scores[2], scores[3]};
    }
  }
}

__device__ void write_factors(const Shared& s, int half, int t, int tokens, const DeltaInput& a, int64_t place) {
  float* const to = a.factors + place * kFactors * kChunk + t;
  const double *const sums = s.sums[half], last = sums[tokens - 1];
  const bool there = t < tokens;
  const float start = there ? decay(sums[t], 0) : 0.f;
  to[kKeyStart * kChunk] = start * s.k_norms[t];
  to[kQueryStart * kChunk] = a.scale * start * s.q_norms[t];
  to[kKeyEnd * kChunk] = there ? decay(last, sums[t]) * s.k_norms[t] : 0.f;
  to[kBeta * kChunk] = s.beta[half][t];
  to[kWhole * kChunk] = decay(last, 0);
}

// One column of (I + A)⁻¹, from the first row to the last: x_t = [t = column] - Σ_{j < t} A_tj x_j.
__device__ void solve_column(const float (&matrix)[kChunk][kChunk + 4], int column, Brain* to) {
  float x[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    float sums[4] = {t == column ? 1.f : 0.f, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < t; j += 4) {
      const float4 row = *reinterpret_cast<const float4*>(&matrix[t][j]);
      sums[0] -= row.x * x[j];
      if (j + 1 < t) sums[1] -= row.y * x[j + 1];
      if (j + 2 < t) sums[2] -= row.z * x[j + 2];
      if (j + 3 < t) sums[3] -= row.w * x[j + 3];
    }
    x[t] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    to[t * kChunk + column] = __float2bfloat16_rn(x[t]);
  }
}

__global__ void __launch_bounds__(kPrepareThreads, 4) prepare(const __grid_constant__ DeltaInput a) {
  extern __shared__ __align__(16) char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  const DeltaChunk chunk = a.chunks[blockIdx.x];
  if (chunk.tokens == 0) return;
  const int key_head = blockIdx.y, tokens = chunk.tokens;
  const int half = threadIdx.x / kChunk, t = threadIdx.x % kChunk;
  load_rows<kChunk, kMostDim, kPrepareThreads>(s.q, a.q + chunk.first * a.q_stride + key_head * a.key_dim, a.q_stride, tokens, a.key_dim, threadIdx.x);
  load_rows<kChunk, kMostDim, kPrepareThreads>(s.k, a.k + chunk.first * a.k_stride + key_head * a.key_dim, a.k_stride, tokens, a.key_dim, threadIdx.x);
  commit_chunks();
  wait_chunks<0>();
  __syncthreads();
  (half == 0 ? s.q_norms : s.k_norms)[t] = norm_of(half == 0 ? s.q[t] : s.k[t], a);
  const Products products(s, threadIdx.x / 32);
  __syncthreads();
  for (int first = 0; first < a.group(); first += 2) {
    const int heads = min(2, a.group() - first), first_head = key_head * a.group() + first;
    const int64_t place = a.place(blockIdx.x, first_head), gates = int64_t{chunk.first} * a.heads + first_head;
    if (half < heads) {
      if (t < 32) sum_gates(s.sums[half], a.g + gates + half, a.heads, tokens);
      s.beta[half][t] = t < tokens ? a.beta[gates + half + int64_t{t} * a.heads] : 0.f;
    }
    __syncthreads();
    for (int each = 0; each < heads; ++each) write_matrices(s, each, products, a, place + each);
    if (half < heads) write_factors(s, half, t, tokens, a, place + half);
    __syncthreads();
    if (half < heads) solve_column(s.matrix[half], t, a.inverse + (place + half) * kChunk * kChunk);
    __syncthreads();
  }
}

}  // namespace

void prepare_delta(const DeltaInput& input, cudaStream_t stream) {
  allow_scratch(prepare, sizeof(Shared));
  prepare<<<dim3(input.chunk_count, input.key_heads), kPrepareThreads, sizeof(Shared), stream>>>(input);
  device::check_launch("chunk_gated_delta_rule");
}

}  // namespace temper::backends
