// Along each document in reverse, the gradients of states between chunks and of V.
#include "backends/cuda/delta/delta_scan.h"

namespace temper::backends {
namespace {

// Barriers where what was given, or left to be stored, has been taken.
constexpr uint32_t kTaken = 1, kStored = 2;

struct Carried {  // what moves the gradient of the state
  Brain k[kChunk][kWidePitch];
  Brain inverse[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
template <int kValues>
struct Given {  // what is added to it, of Y's gradient
  Brain q[kChunk][kWidePitch];
  Brain dy[kChunk][ScanSizes<kValues>::kPitch];
  Brain scores[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
template <int kValues>
struct Shared {
  Carried carried[2];  // one is read while the other is filled
  Given<kValues> given[2];
  Handover<float4, kDimTiles> states[ScanSizes<kValues>::kLanes];     // (diag(scale e / |q|) dY)ᵀ Q
  Handover<float4, kChunkTiles> updates[ScanSizes<kValues>::kLanes];  // (scale Pᵀ dY)ᵀ
  Handover<uint4, kMostDim / 16> behind[ScanSizes<kValues>::kLanes];  // the gradient of the state behind the chunk
  Handover<uint4, kChunk / 16> w[ScanSizes<kValues>::kLanes], dv[ScanSizes<kValues>::kLanes];
};

template <int kValues>
class Scan {
  static constexpr int kMovers = ScanSizes<kValues>::kRoleThreads, kThreads = ScanSizes<kValues>::kThreads;

 public:
  __device__ Scan(const DeltaInput& a, const DeltaGradients& o, Shared<kValues>& s) : a_(a), o_(o), s_(s), at_(a) {}

  __device__ void run() {
    const int root = blockIdx.x;
    if (!a_.documents[root].root) return;
    if (carries()) load_state(dstate_, o_.dfinal, root, a_, at_);
    const int first = a_.documents[root].next;
    for (int d = first; d >= 0; d = a_.documents[d].next) {
      if (carries()) store_state(dstate_, o_.roots, root, a_, at_);
      if (carries()) load_state(dstate_, o_.dfinal, d, a_, at_);
      run_document(d);
      if (carries()) add_root(root, d);
    }
    run_document(root);
    if (carries()) store_state(dstate_, o_.dinitial, root, a_, at_);
  }

 private:
  __device__ bool carries() const { return at_.carries; }

  // Adds the gradient that a document gives to its initial state to that of the root which it continues. Such a
  // document has no initial state of its own, and its gradient is cleared.
  __device__ void add_root(int root, int document) {
    KeySums other;
    load_state(other, o_.roots, root, a_, at_);
    for (int n = 0; n < kDimTiles; ++n)
      for (int i = 0; i < 4; ++i) dstate_.values[n][i] += other.values[n][i];
    other.clear();
    store_state(other, o_.dinitial, document, a_, at_);
  }

  // The carrying warps are a chunk behind what they are given, and a chunk ahead of what is stored.
  __device__ void run_document(int document) {
    const DeltaDocument d = a_.documents[document];
    const int chunks = (d.tokens + kChunk - 1) / kChunk, last = d.first_chunk + chunks - 1;
    __syncthreads();  // no thread still reads data of the document before
    if (chunks == 0) return;
    if (!carries()) load_given(last, 0);
    for (int i = 0; i <= chunks + 1; ++i) {
      if (!carries()) wait_chunks<0>();
      __syncthreads();
      if (carries()) {
        if (i > 0 && i <= chunks) carry((i - 1) % 2, i > 1);
        continue;
      }
      if (i + 1 < chunks) load_given(last - i - 1, (i + 1) % 2);
      if (i < chunks) load_carried(last - i, i % 2);
      if (i > 1) store(last - i + 2, i <= chunks);
      if (i < chunks) give(s_.given[i % 2], i > 0);
      if (i == chunks) sync_threads(kTaken, kThreads);
    }
  }

  __device__ void load_carried(int index, int stage) {
    const int64_t place = a_.place(index, at_.head);
    Carried& to = s_.carried[stage];
    load_keys(to.k, a_.k, a_.k_stride, a_.chunks[index], a_, at_);
    load_triangle<kMovers>(to.inverse, a_.inverse + place * kChunk * kChunk, threadIdx.x % kMovers);
    load_factors<kMovers>(to.factors, a_, place, threadIdx.x % kMovers);
    commit_chunks();
  }
  __device__ void load_given(int index, int stage) {
    const DeltaChunk chunk = a_.chunks[index];
    const int64_t place = a_.place(index, at_.head);
    Given<kValues>& to = s_.given[stage];
    load_keys(to.q, a_.q, a_.q_stride, chunk, a_, at_);
    load_values(to.dy, o_.dy, int64_t{a_.heads} * a_.value_dim, chunk, a_, at_);
    load_triangle<kMovers>(to.scores, a_.scores + place * kChunk * kChunk, threadIdx.x % kMovers);
    load_factors<kMovers>(to.factors, a_, place, threadIdx.x % kMovers);
    commit_chunks();
  }

  // `waits`: for what was given before.
  __device__ void give(const Given<kValues>& in, bool waits) {
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
    if (waits) sync_threads(kTaken, kThreads);
    s_.states[at_.lane].put(states.values);
    s_.updates[at_.lane].put(updates.values);
  }

  __device__ void carry(int stage, bool waits) {
    const Carried& in = s_.carried[stage];
    const KeyRows behind(dstate_);
    TokenSums du, given;
    add(s_.states[at_.lane], in.factors[kWhole][0]);
    s_.updates[at_.lane].take(given.values);
    arrive_at(kTaken, kThreads);
    du.clear();
    add_by_keys(du, behind, in.k);
    if (waits) sync_threads(kStored, kThreads);
    s_.behind[at_.lane].put(behind.parts);
    du.scale(in.factors[kKeyEnd]);
    for (int n = 0; n < kChunkTiles; ++n)
      for (int i = 0; i < 4; ++i) du.values[n][i] += given.values[n][i];
    TokenSums w;
    w.clear();
    add_triangle<false>(w, TokenRows(du), in.inverse);
    s_.w[at_.lane].put(TokenRows(w).parts);
    w.scale(in.factors[kBeta]);
    s_.dv[at_.lane].put(TokenRows(w).parts);
    w.scale(in.factors[kKeyStart]);
    TokenRows known(w);
    known.each_pair([](uint32_t& pair, int) { pair ^= 0x80008000u; });  // - diag(e r beta) W
    add_by_tokens(dstate_, known, in.k);
  }

  // `announces`: that what was left has been taken, to those who leave more.
  __device__ void store(int index, bool announces) {
    KeyRows behind;
    TokenRows w, dv;
    s_.behind[at_.lane].take(behind.parts);
    s_.w[at_.lane].take(w.parts);
    s_.dv[at_.lane].take(dv.parts);
    if (announces) arrive_at(kStored, kThreads);
    if (o_.dstates == nullptr) return;
    const DeltaChunk chunk = a_.chunks[index];
    store_rows(behind, o_.dstates, a_.place(index, at_.head), a_, at_);
    store_tokens(w, o_.w, chunk, a_, at_);
    store_tokens(dv, o_.dv, chunk, a_, at_);
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
  Shared<kValues>& s_;
  ScanPlace<kValues> at_;
  KeySums dstate_;  // transposed
};

template <int kValues>
__global__ void __launch_bounds__(ScanSizes<kValues>::kThreads, 1)
    scan_gradients(const __grid_constant__ DeltaInput a, const __grid_constant__ DeltaGradients o) {
  extern __shared__ __align__(16) char memory[];
  Scan<kValues>(a, o, *reinterpret_cast<Shared<kValues>*>(memory)).run();
}

}  // namespace

void scan_delta_gradients(const DeltaInput& input, const DeltaGradients& gradients, cudaStream_t stream) {
  visit_slices(input, [&]<int kValues>() {
    constexpr size_t kBytes = sizeof(Shared<kValues>);
    static_assert(kBytes <= delta_scratch(kValues));
    allow_scratch(scan_gradients<kValues>, kBytes);
    scan_gradients<kValues>
        <<<scan_blocks(input, kValues), ScanSizes<kValues>::kThreads, kBytes, stream>>>(input, gradients);
  });
  device::check_launch("chunk_gated_delta_rule backward");
}

}  // namespace temper::backends
