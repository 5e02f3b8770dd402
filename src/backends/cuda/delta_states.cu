// Along each document, the states between chunks, the updates U, and Y.
#include "backends/cuda/delta_scan.h"

namespace temper::backends {
namespace {

struct Stage {
  Brain k[kChunk][kWidePitch], q[kChunk][kWidePitch];
  Brain v[kChunk][kSlicePitch];
  Brain inverse[kChunk][kSquarePitch], scores[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
struct Shared {
  Stage stages[2];  // one is read while the other is filled
  Brain state[kMostDim][kSlicePitch];
  Brain known[kChunk][kSlicePitch];    // diag(beta) (V - diag(e) K̂ S)
  Brain updates[kChunk][kSlicePitch];  // U
  Brain kept[kChunk][kSlicePitch];     // diag(D_L r) U
};

class Scan {
 public:
  __device__ Scan(const DeltaInput& a, const DeltaStates& o, Shared& s) : a_(a), o_(o), s_(s), at_(a) {}

  __device__ void run() {
    const int root = blockIdx.x;
    if (!a_.documents[root].root) return;
    state_.load(o_.initial, root, a_, at_);
    run_document(root);
    const StateSums shared = state_;
    for (int d = a_.documents[root].next; d >= 0; d = a_.documents[d].next) {
      state_ = shared;
      run_document(d);
    }
  }

 private:
  __device__ void load(int stage, const DeltaChunk& chunk, int index) {
    Stage& to = s_.stages[stage];
    const int64_t place = a_.place(index, at_.head), first = chunk.first;
    load_rows<kChunk, kMostDim>(to.k, a_.k + first * a_.k_stride + at_.key_head * a_.key_dim, a_.k_stride, chunk.tokens,
                                a_.key_dim);
    load_values(to.v, a_.v + first * a_.v_stride, a_.v_stride, chunk.tokens, a_, at_);
    load_triangle(to.inverse, a_.inverse + place * kChunk * kChunk);
    load_factors(to.factors, a_, place);
    if (o_.y != nullptr) {
      load_rows<kChunk, kMostDim>(to.q, a_.q + first * a_.q_stride + at_.key_head * a_.key_dim, a_.q_stride,
                                  chunk.tokens, a_.key_dim);
      load_triangle(to.scores, a_.scores + place * kChunk * kChunk);
    }
    commit_chunks();
  }

  __device__ void run_document(int document) {
    const DeltaDocument d = a_.documents[document];
    const int chunks = (d.tokens + kChunk - 1) / kChunk;
    __syncthreads();  // nobody reads what the document before has loaded
    if (chunks > 0) load(0, a_.chunks[d.first_chunk], d.first_chunk);
    for (int i = 0; i < chunks; ++i) {
      const int index = d.first_chunk + i;
      state_.share(s_.state, at_.warp);
      wait_chunks<0>();
      __syncthreads();
      if (i + 1 < chunks) load((i + 1) % 2, a_.chunks[index + 1], index + 1);
      run_chunk(s_.stages[i % 2], a_.chunks[index], index);
    }
    state_.store(o_.final_state, document, a_, at_);
  }

  __device__ void run_chunk(const Stage& in, const DeltaChunk& chunk, int index) {
    TokenSums y;
    if (o_.y != nullptr)
      y.add_product(in.q, s_.state, at_);
    else
      store_state(o_.states, a_.place(index, at_.head), s_.state, a_, at_);
    update(in);
    if (o_.y != nullptr)
      write(y, in, chunk);
    else
      write_updates(chunk);
  }

  __device__ void update(const Stage& in) {
    TokenSums known, u;
    known.add_product(in.k, s_.state, at_);
    known.each_pair(at_, [&](int t, int column, float first, float second) {
      const float2 v = load_pair(&in.v[t][column]);
      const float start = in.factors[kKeyStart][t], beta = in.factors[kBeta][t];
      store_pair(&s_.known[t][column], beta * (v.x - start * first), beta * (v.y - start * second));
    });
    __syncthreads();
    u.add_triangle<false>(in.inverse, s_.known, at_);
    u.each_pair(at_, [&](int t, int column, float first, float second) {
      const float end = in.factors[kKeyEnd][t];
      store_pair(&s_.updates[t][column], first, second);
      store_pair(&s_.kept[t][column], end * first, end * second);
    });
    __syncthreads();
    state_.scale(in.factors[kWhole][0]);
    state_.add_product(in.k, s_.kept, at_.warp);
  }

  __device__ void write(TokenSums& y, const Stage& in, const DeltaChunk& chunk) {
    y.each_pair(at_, [&](int t, int, float& first, float& second) {
      first *= in.factors[kQueryStart][t];
      second *= in.factors[kQueryStart][t];
    });
    y.add_triangle<false>(in.scores, s_.updates, at_);
    y.each_pair(at_, [&](int t, int column, float first, float second) {
      if (t < chunk.tokens && column < at_.columns(a_)) store_pair(value_at(o_.y, chunk.first + t) + column, first, second);
    });
  }
  __device__ Brain* value_at(Brain* rows, int64_t token) const {
    return rows + (token * a_.heads + at_.head) * a_.value_dim + at_.column;
  }
  __device__ void write_updates(const DeltaChunk& chunk) {
    const int t = threadIdx.x / (kSlice / 8), column = threadIdx.x % (kSlice / 8) * 8;
    if (t < chunk.tokens && column < at_.columns(a_))
      store_pack(value_at(o_.updates, chunk.first + t) + column, load_pack<Brain, 8>(&s_.updates[t][column]));
  }

  const DeltaInput& a_;
  const DeltaStates& o_;
  Shared& s_;
  ScanPlace at_;
  StateSums state_;
};

__global__ void __launch_bounds__(kScanThreads, 1)
    scan_states(const __grid_constant__ DeltaInput a, const __grid_constant__ DeltaStates o) {
  extern __shared__ __align__(16) char memory[];
  Scan(a, o, *reinterpret_cast<Shared*>(memory)).run();
}
static_assert(kScanThreads == kChunk * kSlice / 8);

}  // namespace

void scan_delta_states(const DeltaInput& input, const DeltaStates& states, cudaStream_t stream) {
  allow_scratch(scan_states, sizeof(Shared));
  const dim3 blocks(input.document_count, input.heads, (input.value_dim + kSlice - 1) / kSlice);
  scan_states<<<blocks, kScanThreads, sizeof(Shared), stream>>>(input, states);
  device::check_launch("chunk_gated_delta_rule");
}

}  // namespace temper::backends
