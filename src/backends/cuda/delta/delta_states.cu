// Along each document, the states between chunks, the updates U, and Y.
#include "backends/cuda/delta/delta_scan.h"

namespace temper::backends {
namespace {

template <int kValues>
struct Carried {  // what moves the state
  Brain k[kChunk][kWidePitch];
  Brain v[kChunk][ScanSizes<kValues>::kPitch];
  Brain inverse[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
struct Read {  // what reads it
  Brain q[kChunk][kWidePitch];
  Brain scores[kChunk][kSquarePitch];
  float factors[kFactors][kChunk];
};
template <int kValues>
struct Shared {
  Carried<kValues> carried[2];  // one is read while the other is filled
  Read read[2];
  Handover<uint4, kMostDim / 16> states[2][ScanSizes<kValues>::kLanes];  // before the chunk
  Handover<uint4, kChunk / 16> updates[2][ScanSizes<kValues>::kLanes];
};

// kKeeps: what reads the states also stores them and the updates.
template <int kValues, bool kKeeps>
class Scan {
  static constexpr int kMovers = ScanSizes<kValues>::kRoleThreads;

 public:
  __device__ Scan(const DeltaInput& a, const DeltaStates& o, Shared<kValues>& s) : a_(a), o_(o), s_(s), at_(a) {}

  __device__ void run() {
    const int root = blockIdx.x;
    if (!a_.documents[root].root) return;
    if (carries()) load_state(state_, o_.initial, root, a_, at_);
    run_document(root);
    const int first = a_.documents[root].next;
    if (carries() && first >= 0) store_state(state_, o_.roots, root, a_, at_);
    for (int d = first; d >= 0; d = a_.documents[d].next) {
      if (carries()) load_state(state_, o_.roots, root, a_, at_);
      run_document(d);
    }
  }

 private:
  __device__ bool carries() const { return at_.carries; }

  // The carrying warps are a chunk ahead of those that use what they leave.
  __device__ void run_document(int document) {
    const DeltaDocument d = a_.documents[document];
    const int chunks = (d.tokens + kChunk - 1) / kChunk;
    __syncthreads();  // no thread still reads data of the document before
    if (!carries() && chunks > 0) load_carried(d.first_chunk, 0);
    for (int i = 0; i <= chunks; ++i) {
      if (!carries()) wait_chunks<0>();
      __syncthreads();
      if (carries()) {
        if (i < chunks) carry(i % 2);
        continue;
      }
      if (i + 1 < chunks) load_carried(d.first_chunk + i + 1, (i + 1) % 2);
      if (i < chunks && o_.y != nullptr) load_read(d.first_chunk + i, i % 2);
      if (i == 0) continue;
      if (o_.y != nullptr)
        read(d.first_chunk + i - 1, (i - 1) % 2);
      else if (o_.states != nullptr)
        store(d.first_chunk + i - 1, (i - 1) % 2);
    }
    if (carries()) store_state(state_, o_.final_state, document, a_, at_);
  }

  __device__ void load_carried(int index, int stage) {
    const DeltaChunk chunk = a_.chunks[index];
    const int64_t place = a_.place(index, at_.head);
    Carried<kValues>& to = s_.carried[stage];
    load_keys(to.k, a_.k, a_.k_stride, chunk, a_, at_);
    load_values(to.v, a_.v, a_.v_stride, chunk, a_, at_);
    load_triangle<kMovers>(to.inverse, a_.inverse + place * kChunk * kChunk, threadIdx.x % kMovers);
    load_factors<kMovers>(to.factors, a_, place, threadIdx.x % kMovers);
    commit_chunks();
  }
  __device__ void load_read(int index, int stage) {
    const int64_t place = a_.place(index, at_.head);
    Read& to = s_.read[stage];
    load_keys(to.q, a_.q, a_.q_stride, a_.chunks[index], a_, at_);
    load_triangle<kMovers>(to.scores, a_.scores + place * kChunk * kChunk, threadIdx.x % kMovers);
    load_factors<kMovers>(to.factors, a_, place, threadIdx.x % kMovers);
    commit_chunks();
  }

  __device__ void carry(int stage) {
    const Carried<kValues>& in = s_.carried[stage];
    const KeyRows before(state_);
    s_.states[stage][at_.lane].put(before.parts);
    TokenSums known, u;
    known.clear();
    add_by_keys(known, before, in.k);
    TokenRows v(in.v, at_.column);
    subtract(known, v, in);
    u.clear();
    add_triangle<true>(u, TokenRows(known), in.inverse);
    s_.updates[stage][at_.lane].put(TokenRows(u).parts);
    u.scale(in.factors[kKeyEnd]);
    for (auto& tile : state_.values)
      for (float& value : tile) value *= in.factors[kWhole][0];
    add_by_tokens(state_, TokenRows(u), in.k);
  }
  // known = beta (v - e r known).
  __device__ static void subtract(TokenSums& known, const TokenRows& v, const Carried<kValues>& in) {
#pragma unroll
    for (int n = 0; n < kChunkTiles; ++n) {
      const int t = n * 8 + sum_column();
      const float2 start = *reinterpret_cast<const float2*>(&in.factors[kKeyStart][t]),
                   beta = *reinterpret_cast<const float2*>(&in.factors[kBeta][t]);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float2 own = widen_pair(v.parts[n / 2][n % 2 * 2 + i / 2]);
        known.values[n][i] = beta.x * (own.x - start.x * known.values[n][i]);
        known.values[n][i + 1] = beta.y * (own.y - start.y * known.values[n][i + 1]);
      }
    }
  }

  __device__ void store(int index, int stage) {
    KeyRows state;
    TokenRows u;
    s_.states[stage][at_.lane].take(state.parts);
    s_.updates[stage][at_.lane].take(u.parts);
    store_rows(state, o_.states, a_.place(index, at_.head), a_, at_);
    store_tokens(u, o_.updates, a_.chunks[index], a_, at_);
  }
  __device__ void read(int index, int stage) {
    KeyRows state;
    TokenRows u;
    s_.states[stage][at_.lane].take(state.parts);
    s_.updates[stage][at_.lane].take(u.parts);
    if constexpr (kKeeps) {
      store_rows(state, o_.states, a_.place(index, at_.head), a_, at_);
      store_tokens(u, o_.updates, a_.chunks[index], a_, at_);
    }
    const Read& in = s_.read[stage];
    TokenSums y;
    y.clear();
    add_by_keys(y, state, in.q);
    y.scale(in.factors[kQueryStart]);
    add_triangle<true>(y, u, in.scores);
    store_tokens(TokenRows(y), o_.y, a_.chunks[index], a_, at_);
  }

  const DeltaInput& a_;
  const DeltaStates& o_;
  Shared<kValues>& s_;
  ScanPlace<kValues> at_;
  KeySums state_;  // transposed
};

template <int kValues, bool kKeeps>
__global__ void __launch_bounds__(ScanSizes<kValues>::kThreads, 1)
    scan_states(const __grid_constant__ DeltaInput a, const __grid_constant__ DeltaStates o) {
  extern __shared__ __align__(16) char memory[];
  Scan<kValues, kKeeps>(a, o, *reinterpret_cast<Shared<kValues>*>(memory)).run();
}

}  // namespace

void scan_delta_states(const DeltaInput& input, const DeltaStates& states, cudaStream_t stream) {
  visit_slices(input, [&]<int kValues>() {
    constexpr size_t kBytes = sizeof(Shared<kValues>);
    static_assert(kBytes <= delta_scratch(kValues));
    const auto scan = states.y != nullptr && states.states != nullptr ? scan_states<kValues, true> : scan_states<kValues, false>;
    allow_scratch(scan, kBytes);
    scan<<<scan_blocks(input, kValues), ScanSizes<kValues>::kThreads, kBytes, stream>>>(input, states);
  });
  device::check_launch("chunk_gated_delta_rule");
}

}  // namespace temper::backends
