// Of each chunk and key head, the gradients of Q, K, and of g and beta of its value heads. Everything is in the
// space of q and k as they are; the norms' own gradients come last.
#include "backends/cuda/delta/delta_chunk_sums.h"

namespace temper::backends {
namespace {

// The gradients of g and beta of a value head, of what the other sums have left in shared memory.
struct GateGradients {
  const DeltaInput& a;
  const DeltaGradients& o;
  GradientShared& s;
  const DeltaChunk& chunk;
  int head;

  // A decay from s to t is the product of those of the tokens behind s up to t; that to the end, of all behind s;
  // that from the beginning, of all up to t.
  __device__ void write() {
    const int t = threadIdx.x;
    const auto& f = s.factors;
    if (t < kChunk) {
      float column = 0;
      for (int i = 0; i < 4; ++i) column += s.columns[i][t];
      const float of_known = f[kKeyStart][t] * dot(kOfKnown, t);
      s.own[t] = f[kQueryStart][t] * dot(kOfQueries, t) - f[kBeta][t] * of_known + over_parts(s.rows, t) -
                  column;
      if (t < chunk.tokens)
        o.dbeta[token(t) * a.heads + head] =
            s.dots[kOfValues][0][t] - of_known + over_parts(s.betas, t);
    }
    __syncthreads();
    if (threadIdx.x < 32) sum_gradients();
  }
  // By one warp, two tokens of each lane.
  __device__ void sum_gradients() {
    const auto& f = s.factors;
    float whole = 0;
    for (const float part : s.whole) whole += part;
    whole *= f[kWhole][0];
    const int t = 2 * lane();
    float kept[2], own[2];
    for (int i = 0; i < 2; ++i) {
      kept[i] = f[kKeyEnd][t + i] * dot(kOfKept, t + i);
      own[i] = s.own[t + i];
    }
    float before = kept[0] + kept[1], behind = own[0] + own[1];  // of this lane's and all lanes' before, behind it
    for (int step = 1; step < 32; step *= 2) {
      const float left = __shfl_up_sync(0xffffffffu, before, step),
                  right = __shfl_down_sync(0xffffffffu, behind, step);
      if (lane() >= step) before += left;
      if (lane() + step < 32) behind += right;
    }
    before = __shfl_up_sync(0xffffffffu, before, 1);
    behind = __shfl_down_sync(0xffffffffu, behind, 1);
    if (lane() == 0) before = 0;
    if (lane() == 31) behind = 0;
    const float sums[2] = {before + (own[0] + own[1] + behind), before + kept[0] + (own[1] + behind)};
    for (int i = 0; i < 2; ++i)
      if (t + i < chunk.tokens) o.dg[token(t + i) * a.heads + head] = whole + sums[i];
  }
  __device__ int64_t token(int t) const { return int64_t{chunk.first} + t; }
  __device__ float dot(GradientDot which, int t) const { return over_parts(s.dots[which], t); }
};

class Gradients {
 public:
  __device__ Gradients(const DeltaInput& a, const DeltaGradients& o, GradientShared& s)
      : a_(a), o_(o), s_(s), warp_(static_cast<int>(threadIdx.x) / 32), row_(warp_ % 4 * 16), part_(warp_ / 4) {}

  __device__ void run() {
    chunk_ = a_.chunks[blockIdx.x];
    if (chunk_.tokens == 0) return;
    load_keys();
    load_tokens(first_head());
    for (int i = 0; i < a_.group(); ++i) {
      head_ = first_head() + i;
      load_states();
      if (i == 0) start();
      from_states();
      __syncthreads();  // coefficients take the states' place
      from_pairs();
      __syncthreads();
      if (i + 1 < a_.group()) load_tokens(head_ + 1);
      from_coefficients();
      GateGradients{a_, o_, s_, chunk_, head_}.write();
      __syncthreads();
    }
    write(dq_, s_.q, s_.q_norms, o_.dq);
    write(dk_, s_.k, s_.k_norms, o_.dk);
  }

 private:
  __device__ int first_head() const { return static_cast<int>(blockIdx.y) * a_.group(); }
  __device__ int64_t token(int t) const { return int64_t{chunk_.first} + t; }

  __device__ void load_keys() {
    const int64_t first = chunk_.first;
    const int column = blockIdx.y * a_.key_dim;
    load_rows<kChunk, kMostDim, kGradientThreads>(s_.q, a_.q + first * a_.q_stride + column, a_.q_stride, chunk_.tokens, a_.key_dim, threadIdx.x);
    load_rows<kChunk, kMostDim, kGradientThreads>(s_.k, a_.k + first * a_.k_stride + column, a_.k_stride, chunk_.tokens, a_.key_dim, threadIdx.x);
  }

  __device__ void load_tokens(int head) {
    const int64_t stride = int64_t{a_.heads} * a_.value_dim,
                  from = chunk_.first * stride + int64_t{head} * a_.value_dim;
    load_rows<kChunk, kMostDim, kGradientThreads>(s_.dy, o_.dy + from, stride, chunk_.tokens, a_.value_dim, threadIdx.x);
    load_rows<kChunk, kMostDim, kGradientThreads>(s_.w, o_.w + from, stride, chunk_.tokens, a_.value_dim, threadIdx.x);
    load_rows<kChunk, kMostDim, kGradientThreads>(s_.u, o_.updates + from, stride, chunk_.tokens, a_.value_dim, threadIdx.x);
    commit_chunks();
  }

  // All but the states' gradient has come then.
  __device__ void load_states() {
    const int64_t place = a_.place(blockIdx.x, head_), state = place * a_.key_dim * a_.value_dim;
    load_rows<kMostDim, kMostDim, kGradientThreads>(s_.state, o_.states + state, a_.key_dim, a_.value_dim, a_.key_dim, threadIdx.x);
    load_factors<kGradientThreads>(s_.factors, a_, place, threadIdx.x);
    commit_chunks();
    load_rows<kMostDim, kMostDim, kGradientThreads>(s_.dstate, o_.dstates + state, a_.key_dim, a_.value_dim, a_.key_dim, threadIdx.x);
    commit_chunks();
    load_v();
    if (warp_ == 0) sum_gates(s_.sums, a_.g + token(0) * a_.heads + head_, a_.heads, chunk_.tokens);
    wait_chunks<1>();
    __syncthreads();
  }

  __device__ void start() {
    const int t = threadIdx.x % kChunk;
    if (threadIdx.x < kChunk) s_.q_norms[t] = norm_of(s_.q[t], a_);
    if (threadIdx.x / kChunk == 1) s_.k_norms[t] = norm_of(s_.k[t], a_);
    qk_.add_product(s_.q, s_.k, row_, part_ * kPartChunk);
    kk_.add_product(s_.k, s_.k, row_, part_ * kPartChunk);
  }

  // sums += factor(t) · rows stateᵀ, and what each of its rows has in common with `along`.
  template <class Factor>
  __device__ void add_scaled(KeySums& sums, const Brain (&rows)[kChunk][kWidePitch],
                             const Brain (&state)[kMostDim][kWidePitch], const Brain (&along)[kChunk][kWidePitch],
                             GradientDot dot, Factor&& factor) {
    KeySums own;
    own.add_product(rows, state, row_, part_ * kPartDim);
    float dots[2] = {};
    const float factors[2] = {factor(row_ + sum_row()), factor(row_ + sum_row(2))};
#pragma unroll
    for (int n = 0; n < kPartDim / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float2 other = load_pair(&along[row_ + sum_row(i)][part_ * kPartDim + n * 8 + sum_column()]);
        dots[i / 2] += own.values[n][i] * other.x + own.values[n][i + 1] * other.y;
        sums.values[n][i] += factors[i / 2] * own.values[n][i];
        sums.values[n][i + 1] += factors[i / 2] * own.values[n][i + 1];
      }
    for (int i = 0; i < 2; ++i) {
      const float sum = over_row(dots[i]);
      if (lane() % 4 == 0) s_.dots[dot][part_][row_ + sum_row(2 * i)] = sum;
    }
  }

  __device__ void from_states() {
    const auto& f = s_.factors;
    add_scaled(dq_, s_.dy, s_.state, s_.q, kOfQueries, [&](int t) { return f[kQueryStart][t]; });
    add_scaled(dk_, s_.w, s_.state, s_.k, kOfKnown, [&](int t) { return -f[kKeyStart][t] * f[kBeta][t]; });
    dot_values();
    wait_chunks<0>();
    __syncthreads();
    add_scaled(dk_, s_.u, s_.dstate, s_.k, kOfKept, [&](int t) { return f[kKeyEnd][t]; });
    float both = 0;  // of the states: the gradient of the decay over the whole chunk
    for (int i = threadIdx.x; i < kMostDim * kMostDim / 2; i += kGradientThreads) {
      const int value = i / (kMostDim / 2), key = i % (kMostDim / 2) * 2;
      const float2 state = load_pair(&s_.state[value][key]), dstate = load_pair(&s_.dstate[value][key]);
      both += state.x * dstate.x + state.y * dstate.y;
    }
    both = warp_sum(both);
    if (lane() == 0) s_.whole[warp_] = both;
  }

  // V, of which eight lanes have a token: early, since it comes from far away.
  static constexpr int kLanesEach = kGradientThreads / kChunk, kEach = kMostDim / kLanesEach;
  static_assert(kLanesEach == 8 && kEach == 16);
  __device__ int dotted_token() const { return threadIdx.x / kLanesEach; }
  __device__ int dotted_value() const { return threadIdx.x % kLanesEach * kEach; }
  __device__ void load_v() {
    const Brain* const from = a_.v + token(dotted_token()) * a_.v_stride + int64_t{head_} * a_.value_dim + dotted_value();
    for (int i = 0; i < 2; ++i)
      v_[i] = dotted_token() < chunk_.tokens && dotted_value() + 8 * i < a_.value_dim ? load_pack<Brain, 8>(from + 8 * i)
                                                                                     : Pack<Brain, 8>{};
  }
  __device__ void dot_values() {
    float sum = 0;
    for (int i = 0; i < 2; ++i) {
      float v[8], w[8];
      widen_all(v_[i], v);
      widen_all(load_pack<Brain, 8>(&s_.w[dotted_token()][dotted_value() + 8 * i]), w);
      for (int j = 0; j < 8; ++j) sum += v[j] * w[j];
    }
    sum = over_row(sum);
    sum += __shfl_xor_sync(0xffffffffu, sum, 4);
    if (lane() % kLanesEach == 0) s_.dots[kOfValues][0][dotted_token()] = sum;
  }

  __device__ void from_pairs() {
    PairSums scores, solved;  // dY Uᵀ, W Uᵀ
    scores.add_product(s_.dy, s_.u, row_, part_ * kPartChunk);
    solved.add_product(s_.w, s_.u, row_, part_ * kPartChunk);
    float rows[2] = {}, betas[2] = {};
#pragma unroll
    for (int n = 0; n < kPartChunk / 8; ++n) {
      float columns[2] = {};
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = row_ + sum_row(i), from = part_ * kPartChunk + n * 8 + sum_column();
        float of_qk[2], of_kk[2];
        for (int j = 0; j < 2; ++j) {
          const int s = from + j;
          const float along = s <= t ? decay(s_.sums[t], s_.sums[s]) * s_.k_norms[s] : 0.f;
          const float of_beta = s < t ? -solved.values[n][i + j] * along * s_.k_norms[t] : 0.f;
          of_qk[j] = a_.scale * scores.values[n][i + j] * along * s_.q_norms[t];
          of_kk[j] = of_beta * s_.factors[kBeta][t];
          const float of_decay = s < t ? of_qk[j] * qk_.values[n][i + j] + of_kk[j] * kk_.values[n][i + j] : 0.f;
          rows[i / 2] += of_decay;
          columns[j] += of_decay;
          betas[i / 2] += of_beta * kk_.values[n][i + j];
        }
        store_pair(&s_.of.qk[t][from], of_qk[0], of_qk[1]);
        store_pair(&s_.of.kk[t][from], of_kk[0], of_kk[1]);
      }
      for (int j = 0; j < 2; ++j) {
        const float sum = over_column(columns[j]);
        if (lane() < 4) s_.columns[warp_ % 4][part_ * kPartChunk + n * 8 + sum_column(j)] = sum;
      }
    }
    for (int i = 0; i < 2; ++i) {
      const float row = over_row(rows[i]), beta = over_row(betas[i]);
      if (lane() % 4 != 0) continue;
      s_.rows[part_][row_ + sum_row(2 * i)] = row;
      s_.betas[part_][row_ + sum_row(2 * i)] = beta;
    }
  }

  __device__ void from_coefficients() {
    dq_.add_triangle<false>(s_.of.qk, s_.k, row_, part_ * kPartDim);
    dk_.add_triangle<true>(s_.of.qk, s_.q, row_, part_ * kPartDim);
    dk_.add_triangle<false>(s_.of.kk, s_.k, row_, part_ * kPartDim);
    dk_.add_triangle<true>(s_.of.kk, s_.k, row_, part_ * kPartDim);
  }

  // With r = 1 / |x| and d the gradient of x where r were constant: d - r² (d·x) x.
  __device__ void write(KeySums& sums, const Brain (&x)[kChunk][kWidePitch], const float (&norms)[kChunk], Brain* to) {
    float dots[2] = {};
    sums.each_pair([&](int row, int column, float first, float second) {
      const float2 own = load_pair(&x[row_ + row][part_ * kPartDim + column]);
      dots[row / 8] += first * own.x + second * own.y;
    });
    __syncthreads();  // rows of sums are read no longer
    for (int i = 0; i < 2; ++i) {
      const float sum = over_row(dots[i]);
      if (lane() % 4 == 0) s_.rows[part_][row_ + sum_row(2 * i)] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int t = row_ + sum_row(i);
      const float factor = a_.norms ? norms[t] * norms[t] * over_parts(s_.rows, t) : 0.f;
      uint32_t pairs[kPartDim / 8];
#pragma unroll
      for (int n = 0; n < kPartDim / 8; ++n) {
        const float2 own = load_pair(&x[t][part_ * kPartDim + n * 8 + sum_column()]);
        pairs[n] = pair_of(sums.values[n][i] - factor * own.x, sums.values[n][i + 1] - factor * own.y);
      }
      turn_quads(pairs);
      const int at = part_ * kPartDim + lane() % 4 * 8;
      if (t < chunk_.tokens && at < a_.key_dim)
        *reinterpret_cast<uint4*>(to + (token(t) * a_.key_heads + blockIdx.y) * a_.key_dim + at) = {
            pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }

  const DeltaInput& a_;
  const DeltaGradients& o_;
  GradientShared& s_;
  int warp_, row_, part_, head_ = 0;
  DeltaChunk chunk_;
  Pack<Brain, 8> v_[2];
  PairSums qk_, kk_;
  KeySums dq_, dk_;
};

__global__ void __launch_bounds__(kGradientThreads, 1)
    chunk_gradients(const __grid_constant__ DeltaInput a, const __grid_constant__ DeltaGradients o) {
  extern __shared__ __align__(16) char memory[];
  Gradients(a, o, *reinterpret_cast<GradientShared*>(memory)).run();
}

static_assert(sizeof(GradientShared) <= delta_scratch(32));

}  // namespace

void delta_chunk_gradients(const DeltaInput& input, const DeltaGradients& gradients, cudaStream_t stream) {
  allow_scratch(chunk_gradients, sizeof(GradientShared));
  chunk_gradients<<<dim3(input.chunk_count, input.key_heads), kGradientThreads, sizeof(GradientShared), stream>>>(input,
                                                                                                         gradients);
  device::check_launch("chunk_gated_delta_rule backward");
}

}  // namespace temper::backends
