// Along each document in reverse, the gradients of states between chunks and of V.
#include "backends/cuda/delta_scan.h"

namespace temper::backends {
namespace {

constexpr uint32_t kTaken = 1;  // the barrier where what was handed over has been taken

struct Carried {  // what moves the gradient of the state
  Brain k[kChunk][kWidePitch];
  Brain inverse[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
struct Given {  // what is added to it, of Y's gradient
  Brain q[kChunk][kWidePitch];
  Brain dy[kChunk][kSlicePitch];
  Brain scores[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
struct Shared {
  Carried carried[2];  // one is read while the other is filled
  Given given[2];
  Handover<float4, kDimTiles> states[kPairs];     // (diag(scale e / |q|) dY)ᵀ Q
  Handover<float4, kChunkTiles> updates[kPairs];  // (scale Pᵀ dY)ᵀ
  Handover<float4, kDimTiles> roots[kPairs];      // behind the root, whose continuations add to it
};

class Scan {
 public:
  __device__ Scan(const DeltaInput& a, const DeltaGradients& o, Shared& s) : a_(a), o_(o), s_(s), at_(a) {}

  __device__ void run() {
    const int root = blockIdx.x;
    if (!a_.documents[root].root) return;
    auto& behind = s_.roots[at_.pair];  // of the carrying warp alone
    if (at_.carries) {
      load_state(dstate_, o_.dfinal, root, a_, at_);
      behind.put(dstate_.values);
    }
    for (int d = a_.documents[root].next; d >= 0; d = a_.documents[d].next) {
      if (at_.carries) load_state(dstate_, o_.dfinal, d, a_, at_);
      run_document(d);
      if (!at_.carries) continue;
      add(behind, 1);
      behind.put(dstate_.values);
      dstate_.clear();
      store_state(dstate_, o_.dinitial, d, a_, at_);  // which it does not read
    }
    if (at_.carries) behind.take(dstate_.values);
    run_document(root);
    if (at_.carries) store_state(dstate_, o_.dinitial, root, a_, at_);
  }

 private:
  // The carrying warps are a chunk behind the others.
  __device__ void run_document(int document) {
    const DeltaDocument d = a_.documents[document];
    const int chunks = (d.tokens + kChunk - 1) / kChunk, last = d.first_chunk + chunks - 1;
    __syncthreads();  // nobody reads what the document before has loaded
    if (!at_.carries && chunks > 0) load_given(last, 0);
    for (int i = 0; i <= chunks; ++i) {
      if (!at_.carries) wait_chunks<0>();
      __syncthreads();
      if (at_.carries) {
        if (i > 0) carry(last - i + 1, (i - 1) % 2);
        continue;
      }
      if (i + 1 < chunks) load_given(last - i - 1, (i + 1) % 2);
      if (i < chunks) {
        load_carried(last - i, i % 2);
        give(s_.given[i % 2], i > 0);
      } else if (i > 0) {
        sync_threads(kTaken, kScanThreads);
      }
    }
  }

  __device__ void load_carried(int index, int stage) {
    const int64_t place = a_.place(index, at_.head);
    Carried& to = s_.carried[stage];
    load_keys(to.k, a_.k, a_.k_stride, a_.chunks[index], a_, at_);
    load_triangle<kHelpers>(to.inverse, a_.inverse + place * kChunk * kChunk, helper());
    load_factors<kHelpers>(to.factors, a_, place, helper());
    commit_chunks();
  }
  __device__ void load_given(int index, int stage) {
    const DeltaChunk chunk = a_.chunks[index];
    const int64_t place = a_.place(index, at_.head);
    Given& to = s_.given[stage];
    load_keys(to.q, a_.q, a_.q_stride, chunk, a_, at_);
    load_values(to.dy, o_.dy, int64_t{a_.heads} * a_.value_dim, chunk, a_, at_);
    load_triangle<kHelpers>(to.scores, a_.scores + place * kChunk * kChunk, helper());
    load_factors<kHelpers>(to.factors, a_, place, helper());
    commit_chunks();
  }

  // `waits`: for what was given before.
  __device__ void give(const Given& in, bool waits) {
    TokenRows dy(in.dy, at_.column);
    TokenSums updates;
    updates.clear();
    add_triangle<false>(updates, dy, in.scores);
    dy.each_pair([&](uint32_t& pair, int t) {
      const float2 factor = *reinterpret_cast<const float2*>(&in.factors[kQueryStart][t]), own = widen_pair(pair);
      pair = pair_of(factor.x * own.x, factor.y * own.y);
    });
    KeySums states;
    states.clear();
    add_by_tokens(states, dy, in.q);
    if (waits) sync_threads(kTaken, kScanThreads);
    s_.states[at_.pair].put(states.values);
    s_.updates[at_.pair].put(updates.values);
  }

  __device__ void carry(int index, int stage) {
    const Carried& in = s_.carried[stage];
    const DeltaChunk chunk = a_.chunks[index];
    KeyRows behind(dstate_);
    TokenSums du, given;
    add(s_.states[at_.pair], in.factors[kWhole][0]);
    s_.updates[at_.pair].take(given.values);
    arrive_at(kTaken, kScanThreads);
    store_rows(behind, o_.dstates, a_.place(index, at_.head), a_, at_);
    du.clear();
    add_by_keys(du, behind, in.k);
    du.scale(in.factors[kKeyEnd]);
    for (int n = 0; n < kChunkTiles; ++n)
      for (int i = 0; i < 4; ++i) du.values[n][i] += given.values[n][i];
    TokenSums w;
    w.clear();
    add_triangle<false>(w, TokenRows(du), in.inverse);
    store_tokens(TokenRows(w), o_.w, chunk, a_, at_);
    w.scale(in.factors[kBeta]);
    store_tokens(TokenRows(w), o_.dv, chunk, a_, at_);
    w.scale(in.factors[kKeyStart]);
    TokenRows known(w);
    known.each_pair([](uint32_t& pair, int) { pair ^= 0x80008000u; });  // - diag(e r beta) W
    add_by_tokens(dstate_, known, in.k);
  }
  // The state's gradient becomes factor · itself + other.
  __device__ void add(const Handover<float4, kDimTiles>& other, float factor) {
    other.take([&](int n, const float4& part) {
      float(&own)[4] = dstate_.values[n];
      own[0] = factor * own[0] + part.x;
      own[1] = factor * own[1] + part.y;
      own[2] = factor * own[2] + part.z;
      own[3] = factor * own[3] + part.w;
    });
  }

  const DeltaInput& a_;
  const DeltaGradients& o_;
  Shared& s_;
  ScanPlace at_;
  KeySums dstate_;  // transposed
};

__global__ void __launch_bounds__(kScanThreads, 1)
    scan_gradients(const __grid_constant__ DeltaInput a, const __grid_constant__ DeltaGradients o) {
  extern __shared__ __align__(16) char memory[];
  Scan(a, o, *reinterpret_cast<Shared*>(memory)).run();
}

static_assert(sizeof(Shared) <= kDeltaScratch);

}  // namespace

void scan_delta_gradients(const DeltaInput& input, const DeltaGradients& gradients, cudaStream_t stream) {
  allow_scratch(scan_gradients, sizeof(Shared));
  const dim3 blocks(input.document_count, input.heads, (input.value_dim + kSlice - 1) / kSlice);
  scan_gradients<<<blocks, kScanThreads, sizeof(Shared), stream>>>(input, gradients);
  device::check_launch("chunk_gated_delta_rule backward");
}

}  // namespace temper::backends
