// The gated delta rule, forward.
#include "backends/onednn/delta_rule.h"

#include "backends/floats.h"
#include "backends/onednn/delta_rows.h"
#include "base/threads/threads.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"

namespace temper::backends {
namespace {

using ops::ChunkGatedDeltaRule;

int64_t state_size(const ChunkGatedDeltaRule& op) { return op.key_dim() * op.value_dim(); }

// In addition to the chunk's floats: P, Y, and the states before and behind a document.
int64_t floats_of(const ChunkGatedDeltaRule::Signature& s, int64_t chunk) {
  return DeltaChunks::floats(s.key_dim, s.value_dim, chunk) + chunk * (kDeltaStride + s.value_dim) +
         2 * (s.heads / std::max<int64_t>(s.key_heads, 1)) * s.key_dim *
             s.value_dim;  // heads fit: checked by the op
}
int64_t floats_of(const ChunkGatedDeltaRule& op) {
  return floats_of({op.q.dtype(), op.key_heads(), op.heads(), op.key_dim(), op.value_dim()}, delta_chunk(op));
}
std::vector<ops::Tiling> tilings(const ChunkGatedDeltaRule::Signature& s) {
  std::vector<ops::Tiling> all;
  for (const int64_t chunk : kDeltaChunks)
    all.push_back({fmt::format("{} tokens", chunk), 32 * floats_of(s, chunk)});
  return all;
}

struct Forward {
  const ChunkGatedDeltaRule& op;
  const ChunkGatedDeltaRule::Output& out;
  DeltaChunks& chunks;
  float *p, *y;
};

void write_chunk(const Forward& f, int64_t head, const float* state) {
  const KeyChunk& keys = f.chunks.keys();
  const ValueChunk& values = f.chunks.values();
  const int64_t dim = f.op.value_dim(), key_dim = f.op.key_dim();
  delta_product({keys.q, key_dim}, {state, dim}, {keys.size, dim, key_dim}, f.y, dim);
  for (int64_t t = 0; t < keys.size; ++t)
    delta_rows::scale(f.y + t * dim, values.start[t], f.y + t * dim, dim);
  f.chunks.mix(f.p);
  delta_product({f.p, kDeltaStride}, {values.u, dim}, {keys.size, dim, keys.size}, f.y, dim, true);
  delta_rows::scale(f.y, f.op.scale, f.y, keys.size * dim);
  copy_block({f.y, DType::kF32, dim}, heads_at(f.out.y, keys.first, head), keys.size, dim);
}

// From `states` [group, key_dim, value_dim], which move on.
void run_document(const Forward& f, int64_t document, int64_t key_head, float* states) {
  const int64_t begin = f.op.documents.start(document), end = begin + f.op.documents.length(document),
                chunk = delta_chunk(f.op);
  for (int64_t first = begin; first < end; first += chunk) {
    f.chunks.load_keys(key_head, first, std::min(chunk, end - first));
    for (int64_t h = 0; h < f.op.group(); ++h) {
      float* const state = states + h * state_size(f.op);
      f.chunks.load_values(key_head * f.op.group() + h, state);
      if (f.out.y.defined()) write_chunk(f, key_head * f.op.group() + h, state);
      f.chunks.advance(state);
    }
  }
}

void run_family(const ChunkGatedDeltaRule& op, const ChunkGatedDeltaRule::Output& out,
                const DeltaFamily& family, int64_t key_head) {
  Scratch scratch(floats_of(op));
  DeltaChunks chunks(op, scratch);
  const int64_t size = op.group() * state_size(op);
  const Forward f{op, out, chunks, scratch.take(delta_chunk(op) * kDeltaStride),
                  scratch.take(delta_chunk(op) * op.value_dim())};
  float *const states = scratch.take(size), *const shared = scratch.take(size);
  const auto at = [&](const Tensor& all, int64_t document) {
    return all.data<float>() + document * op.heads() * state_size(op) + key_head * size;
  };
  if (op.initial.defined())
    std::copy_n(at(op.initial, family.front()), size, shared);
  else
    std::fill_n(shared, size, 0.f);
  for (const int64_t document : family) {
    std::copy_n(shared, size, states);
    run_document(f, document, key_head, states);
    if (document == family.front()) std::copy_n(states, size, shared);
    if (out.final_state.defined()) std::copy_n(states, size, at(out.final_state, document));
  }
}

ChunkGatedDeltaRule::Output forward(const ChunkGatedDeltaRule& op, ChunkGatedDeltaRule::Wanted wanted) {
  ChunkGatedDeltaRule::Output out;
  if (wanted.y) out.y = Tensor::empty(op.v.shape(), op.v.dtype());
  if (wanted.final_state) out.final_state = Tensor::empty(op.state_shape(), DType::kF32);
  const std::vector<DeltaFamily> families = delta_families(op.documents);
  parallel_for(std::ssize(families) * op.key_heads(), [&](int64_t i) {
    run_family(op, out, families[static_cast<size_t>(i / op.key_heads())], i % op.key_heads());
  });
  return out;
}

ChunkGatedDeltaRule::Output outline_forward(const ChunkGatedDeltaRule& op,
                                            ChunkGatedDeltaRule::Wanted wanted) {
  const auto out = ops::outline<ChunkGatedDeltaRule>().forward(op, wanted);
  const size_t tasks = delta_families(op.documents).size() * static_cast<size_t>(op.key_heads());
  hold_largest(std::vector<int64_t>(tasks, TaskMemory::pooled_bytes(floats_of(op))), op.q.device());
  return out;
}

}  // namespace

void register_onednn_delta_rule() {
  ops::kernels<ChunkGatedDeltaRule>().add("onednn",
                                          {.accepts = refuse_float16,
                                           .forward = forward,
                                           .backward = delta_rule_backward,
                                           .batch_invariant = true,
                                           .tilings = tilings,
                                           .outline = {outline_forward, outline_delta_rule_backward}});
}

}  // namespace temper::backends
