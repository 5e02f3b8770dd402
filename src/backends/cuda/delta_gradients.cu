// Along each document in reverse, the gradients of states between chunks and of V.
#include "backends/cuda/delta_scan.h"

namespace temper::backends {
namespace {

struct Stage {
  Brain k[kChunk][kWidePitch], q[kChunk][kWidePitch];
  Brain dy[kChunk][kSlicePitch];
  Brain inverse[kChunk][kSquarePitch], scores[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
struct Shared {
  Stage stages[2];  // one is read while the other is filled
  Brain dstate[kMostDim][kSlicePitch];
  Brain reads[kChunk][kSlicePitch];  // diag(scale e / |q|) dY
  Brain du[kChunk][kSlicePitch];
  Brain known[kChunk][kSlicePitch];  // - diag(e r beta) W
};

class Scan {
 public:
  __device__ Scan(const DeltaInput& a, const DeltaGradients& o, Shared& s) : a_(a), o_(o), s_(s), at_(a) {}

  __device__ void run() {
    const int root = blockIdx.x;
    if (!a_.documents[root].root) return;
    StateSums shared;
    shared.load(o_.dfinal, root, a_, at_);
    for (int d = a_.documents[root].next; d >= 0; d = a_.documents[d].next) {
      dstate_.load(o_.dfinal, d, a_, at_);
      run_document(d);
      shared.add(dstate_);
      dstate_.clear();
      dstate_.store(o_.dinitial, d, a_, at_);  // which it does not read
    }
    dstate_ = shared;
    run_document(root);
    dstate_.store(o_.dinitial, root, a_, at_);
  }

 private:
  __device__ void load(int stage, const DeltaChunk& chunk, int index) {
    Stage& to = s_.stages[stage];
    const int64_t place = a_.place(index, at_.head), first = chunk.first, stride = int64_t{a_.heads} * a_.value_dim;
    load_rows<kChunk, kMostDim>(to.k, a_.k + first * a_.k_stride + at_.key_head * a_.key_dim, a_.k_stride, chunk.tokens,
                                a_.key_dim);
    load_rows<kChunk, kMostDim>(to.q, a_.q + first * a_.q_stride + at_.key_head * a_.key_dim, a_.q_stride, chunk.tokens,
                                a_.key_dim);
    load_values(to.dy, o_.dy + first * stride, stride, chunk.tokens, a_, at_);
    load_triangle(to.inverse, a_.inverse + place * kChunk * kChunk);
    load_triangle(to.scores, a_.scores + place * kChunk * kChunk);
    load_factors(to.factors, a_, place);
    commit_chunks();
  }

  __device__ void run_document(int document) {
    const DeltaDocument d = a_.documents[document];
    const int last = (d.tokens + kChunk - 1) / kChunk - 1;
    __syncthreads();  // nobody reads what the document before has loaded
    if (last >= 0) load(last % 2, a_.chunks[d.first_chunk + last], d.first_chunk + last);
    for (int i = last; i >= 0; --i) {
      const int index = d.first_chunk + i;
      dstate_.share(s_.dstate, at_.warp);
      wait_chunks<0>();
      __syncthreads();
      if (i > 0) load((i + 1) % 2, a_.chunks[index - 1], index - 1);
      run_chunk(s_.stages[i % 2], a_.chunks[index], index);
    }
  }

  __device__ void run_chunk(const Stage& in, const DeltaChunk& chunk, int index) {
    store_state(o_.dstates, a_.place(index, at_.head), s_.dstate, a_, at_);
    scale_gradient(in);
    TokenSums du, w;
    du.add_product(in.k, s_.dstate, at_);
    du.each_pair(at_, [&](int t, int, float& first, float& second) {
      first *= in.factors[kKeyEnd][t];
      second *= in.factors[kKeyEnd][t];
    });
    du.add_triangle<true>(in.scores, in.dy, at_);
    du.each_pair(at_, [&](int t, int column, float first, float second) { store_pair(&s_.du[t][column], first, second); });
    __syncthreads();
    w.add_triangle<true>(in.inverse, s_.du, at_);
    w.each_pair(at_, [&](int t, int column, float first, float second) {
      const float beta = in.factors[kBeta][t], start = -in.factors[kKeyStart][t] * beta;
      store_pair(&s_.known[t][column], start * first, start * second);
      if (t >= chunk.tokens || column >= at_.columns(a_)) return;
      const int64_t to = ((int64_t{chunk.first} + t) * a_.heads + at_.head) * a_.value_dim + at_.column + column;
      store_pair(o_.w + to, first, second);
      store_pair(o_.dv + to, beta * first, beta * second);
    });
    __syncthreads();
    dstate_.scale(in.factors[kWhole][0]);
    dstate_.add_product(in.q, s_.reads, at_.warp);
    dstate_.add_product(in.k, s_.known, at_.warp);
  }

  __device__ void scale_gradient(const Stage& in) {
    const int t = threadIdx.x / (kSlice / 8), column = threadIdx.x % (kSlice / 8) * 8;
    const float factor = in.factors[kQueryStart][t];
    for (int i = 0; i < 8; i += 2) {
      const float2 dy = load_pair(&in.dy[t][column + i]);
      store_pair(&s_.reads[t][column + i], factor * dy.x, factor * dy.y);
    }
  }

  const DeltaInput& a_;
  const DeltaGradients& o_;
  Shared& s_;
  ScanPlace at_;
  StateSums dstate_;
};

__global__ void __launch_bounds__(kScanThreads, 1)
    scan_gradients(const __grid_constant__ DeltaInput a, const __grid_constant__ DeltaGradients o) {
  extern __shared__ __align__(16) char memory[];
  Scan(a, o, *reinterpret_cast<Shared*>(memory)).run();
}
static_assert(kScanThreads == kChunk * kSlice / 8);

}  // namespace

void scan_delta_gradients(const DeltaInput& input, const DeltaGradients& gradients, cudaStream_t stream) {
  allow_scratch(scan_gradients, sizeof(Shared));
  const dim3 blocks(input.document_count, input.heads, (input.value_dim + kSlice - 1) / kSlice);
  scan_gradients<<<blocks, kScanThreads, sizeof(Shared), stream>>>(input, gradients);
  device::check_launch("chunk_gated_delta_rule backward");
}

}  // namespace temper::backends
