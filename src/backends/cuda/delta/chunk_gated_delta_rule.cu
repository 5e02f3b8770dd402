#include <array>
#include <optional>
#include <vector>

#include "backends/cuda/delta/delta_rule.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "tensor/host_inputs.h"

namespace temper::backends {
namespace {

using ops::ChunkGatedDeltaRule;
using ops::Documents;

// Where documents and their chunks are. A captured graph is replayed with other documents. Therefore there are as
// many chunks as this number of documents and tokens can need at most.
struct Cut {
  Tensor chunks, documents;
  int chunk_count, document_count;
};

std::vector<DeltaDocument> list_documents(const Documents& documents) {
  std::vector<DeltaDocument> all;
  int chunk = 0;
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int tokens = static_cast<int>(documents.length(d));
    all.push_back({static_cast<int>(documents.start(d)), tokens, chunk, documents.continues(d) < 0, -1});
    chunk += (tokens + kChunk - 1) / kChunk;
  }
  for (int64_t d = documents.count() - 1; d >= 0; --d)
    if (const int64_t root = documents.continues(d); root >= 0) {
      auto& own = all[static_cast<size_t>(d)];
      own.next = std::exchange(all[static_cast<size_t>(root)].next, static_cast<int>(d));
    }
  return all;
}

std::vector<DeltaChunk> list_chunks(const Documents& documents, size_t most) {
  std::vector<DeltaChunk> all;
  for (const DeltaDocument& d : list_documents(documents))
    for (int first = 0; first < d.tokens; first += kChunk)
      all.push_back({d.first + first, std::min(kChunk, d.tokens - first)});
  all.resize(most);
  return all;
}

template <class List>
Tensor bring(const char* what, const Documents& documents, int count, Device device, List list) {
  using Entry = typename decltype(list())::value_type;
  const auto name = fmt::format("delta {} {} {}", what, name_of(documents.starts),
                                documents.continued.defined() ? name_of(documents.continued) : "");
  const int64_t bytes = count * static_cast<int64_t>(sizeof(Entry));
  return from_host(name, {bytes}, DType::kU8, device, [list, bytes](std::byte* to) {
    std::memcpy(to, list().data(), static_cast<size_t>(bytes));
  });
}

Cut cut(const ChunkGatedDeltaRule& op) {
  const Documents& documents = op.documents;
  Cut cut;
  cut.document_count = static_cast<int>(documents.count());
  cut.chunk_count = static_cast<int>(op.tokens() / kChunk) + cut.document_count;
  const Device device = op.q.device();
  cut.chunks = bring("chunks", documents, cut.chunk_count, device, [=, most = static_cast<size_t>(cut.chunk_count)] {
    return list_chunks(documents, most);
  });
  cut.documents =
      bring("documents", documents, cut.document_count, device, [=] { return list_documents(documents); });
  return cut;
}

// Heads of a token one behind the other, tokens at any distance that keeps packs aligned.
Tensor with_aligned_rows(const Tensor& x) {
  const bool heads = x.stride(2) == 1 && x.stride(1) == x.dim(2);
  return heads && is_aligned(x) && x.stride(0) % kLanes<Brain> == 0 ? x : x.clone();
}

Tensor workspace(const Shape& shape, DType dtype, Device device) {
  return Tensor::empty(shape, dtype, MemoryTag::kWorkspace, device);
}

Shape state_shape(const ChunkGatedDeltaRule& op, int64_t count) {
  return {count, op.heads(), op.key_dim(), op.value_dim()};
}

// What the first step makes.
struct Made {
  Tensor inverse, scores, factors;

  Made(const ChunkGatedDeltaRule& op, int64_t chunks, MemoryTag tag)
      : inverse(Tensor::empty({chunks, op.heads(), kChunk, kChunk}, DType::kBF16, tag, op.q.device())),
        scores(Tensor::empty(inverse.shape(), DType::kBF16, tag, op.q.device())),
        factors(Tensor::empty({chunks, op.heads(), kFactors, kChunk}, DType::kF32, tag, op.q.device())) {}
  Made(Tensor inverses, Tensor products, Tensor rows)
      : inverse(std::move(inverses)), scores(std::move(products)), factors(std::move(rows)) {}
};

// States before chunks, and U.
struct States {
  Tensor states, updates;

  States(const ChunkGatedDeltaRule& op, int64_t chunks, MemoryTag tag)
      : states(Tensor::empty(state_shape(op, chunks), DType::kBF16, tag, op.q.device())),
        updates(Tensor::empty(op.v.shape(), DType::kBF16, tag, op.q.device())) {}
  States(Tensor before, Tensor u) : states(std::move(before)), updates(std::move(u)) {}
};

// What forward may leave for backward, and its order there.
struct Kept {
  Made made;
  States states;

  Kept(const ChunkGatedDeltaRule& op, int64_t chunks, MemoryTag tag)
      : Kept(Made(op, chunks, tag), States(op, chunks, tag)) {}
  Kept(Made first, States second) : made(std::move(first)), states(std::move(second)) {}
  explicit Kept(const std::vector<Tensor>& from) : made(from[0], from[1], from[2]), states(from[3], from[4]) {}
  std::vector<Tensor> tensors() const {
    return {made.inverse, made.scores, made.factors, states.states, states.updates};
  }
};

// Room for states that several documents continue.
Tensor roots_of(const ChunkGatedDeltaRule& op) {
  if (!op.documents.continued.defined()) return {};
  return workspace(op.state_shape(), DType::kF32, op.q.device());
}

// Blocks of the scans have 64 values where the tiling allows and that keeps the GPU busy: bits are the same with 32.
bool has_wide_slices(const ChunkGatedDeltaRule& op) {
  int processors = 0;
  device::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, op.q.device().index),
                "cudaDeviceGetAttribute");
  return op.documents.count() * op.heads() * ((op.value_dim() + 63) / 64) >= processors && op.value_dim() > 32 &&
         op.tiling == 0;
}

// What all steps read: the op's tensors, and what the first step makes of them.
struct Prepared {
  Cut list;
  Tensor q, k, v, initial, roots;
  DeltaInput input;

  // `made`: what the first step makes; what it has `left` before is there already.
  Prepared(const ChunkGatedDeltaRule& op, Cut&& given, const Made& made, bool left)
      : list(std::move(given)),
        q(with_aligned_rows(op.q)),
        k(with_aligned_rows(op.k)),
        v(with_aligned_rows(op.v)),
        initial(aligned(op.initial)),
        roots(roots_of(op)) {
    const auto brain = [](const Tensor& x) { return static_cast<Brain*>(x.raw()); };
    input = {.q = brain(q),
             .k = brain(k),
             .v = brain(v),
             .q_stride = q.stride(0),
             .k_stride = k.stride(0),
             .v_stride = v.stride(0),
             .g = op.g.data<float>(),
             .beta = op.beta.data<float>(),
             .key_heads = static_cast<int>(op.key_heads()),
             .heads = static_cast<int>(op.heads()),
             .key_dim = static_cast<int>(op.key_dim()),
             .value_dim = static_cast<int>(op.value_dim()),
             .scale = op.scale,
             .eps = op.eps,
             .norms = op.norms,
             .wide_slices = has_wide_slices(op),
             .chunk_count = list.chunk_count,
             .document_count = list.document_count,
             .chunks = static_cast<const DeltaChunk*>(list.chunks.raw()),
             .documents = static_cast<const DeltaDocument*>(list.documents.raw()),
             .inverse = brain(made.inverse),
             .scores = brain(made.scores),
             .factors = made.factors.data<float>()};
    if (!left) prepare_delta(input, device::stream(op.q.device()));
  }
};

float* floats_or_null(const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; }

ChunkGatedDeltaRule::Output forward(const ChunkGatedDeltaRule& op, ChunkGatedDeltaRule::Wanted wanted) {
  const Device device = op.q.device();
  ChunkGatedDeltaRule::Output out;
  if (wanted.y) out.y = Tensor::empty(op.v.shape(), op.v.dtype(), MemoryTag::kActivations, device);
  if (wanted.final_state)
    out.final_state =
        Tensor::empty(op.state_shape(), DType::kF32, MemoryTag::kActivations, device);
  if (op.documents.count() == 0) return out;
  Cut list = cut(op);
  const MemoryTag tag = wanted.kept ? MemoryTag::kActivations : MemoryTag::kWorkspace;
  const Made made(op, list.chunk_count, tag);
  DeltaStates states{.final_state = floats_or_null(out.final_state),
                     .y = wanted.y ? static_cast<Brain*>(out.y.raw()) : nullptr};
  if (wanted.kept) {
    const States kept(op, list.chunk_count, tag);
    out.kept = Kept(made, kept).tensors();
    states.states = static_cast<Brain*>(kept.states.raw());
    states.updates = static_cast<Brain*>(kept.updates.raw());
  }
  const Prepared prepared(op, std::move(list), made, false);
  states.initial = floats_or_null(prepared.initial);
  states.roots = floats_or_null(prepared.roots);
  scan_delta_states(prepared.input, states, device::stream(device));
  return out;
}

// What backward makes: gradients of states behind chunks, and W.
struct Between {
  Tensor dstates, w;
  Between(const ChunkGatedDeltaRule& op, int64_t chunks)
      : dstates(workspace(state_shape(op, chunks), DType::kBF16, op.q.device())),
        w(workspace(op.v.shape(), DType::kBF16, op.q.device())) {}
};

ChunkGatedDeltaRule::Grads empty_grads(const ChunkGatedDeltaRule& op) {
  const auto like = [](const Tensor& x) {
    return Tensor::empty(x.shape(), x.dtype(), MemoryTag::kActivations, x.device());
  };
  return {like(op.q),    like(op.k),
          like(op.v),    like(op.g),
          like(op.beta), op.initial.defined() ? like(op.initial) : Tensor()};
}

ChunkGatedDeltaRule::Grads initial_gradients(const ChunkGatedDeltaRule& op, const Tensor& given_dy) {
  ChunkGatedDeltaRule::Grads grads;
  grads.initial =
      Tensor::empty(op.state_shape(), DType::kF32, MemoryTag::kActivations, op.q.device());
  if (op.documents.count() == 0) return grads;
  const Tensor dy = aligned(given_dy);
  Cut list = cut(op);
  const Made made(op, list.chunk_count, MemoryTag::kWorkspace);
  const Prepared prepared(op, std::move(list), made, false);
  scan_delta_gradients(prepared.input,
                       {.dy = static_cast<Brain*>(dy.raw()),
                        .dinitial = floats_or_null(grads.initial),
                        .roots = floats_or_null(prepared.roots)},
                       device::stream(op.q.device()));
  return grads;
}

ChunkGatedDeltaRule::Grads backward(const ChunkGatedDeltaRule& op, const std::vector<Tensor>& kept,
                                    const Tensor& given_dy, const Tensor& given_dfinal,
                                    ChunkGatedDeltaRule::WantedGrads wanted) {
  if (wanted == ChunkGatedDeltaRule::WantedGrads::kInitial) return initial_gradients(op, given_dy);
  const ChunkGatedDeltaRule::Grads grads = empty_grads(op);
  if (op.documents.count() == 0) return grads;
  const cudaStream_t stream = device::stream(op.q.device());
  const Tensor dy = aligned(given_dy), dfinal = aligned(given_dfinal);
  Cut list = cut(op);
  const int chunks = list.chunk_count;
  const Kept all = kept.empty() ? Kept(op, chunks, MemoryTag::kWorkspace) : Kept(kept);
  const Prepared prepared(op, std::move(list), all.made, !kept.empty());
  const Between between(op, chunks);
  const auto brain = [](const Tensor& x) { return static_cast<Brain*>(x.raw()); };
  if (kept.empty())
    scan_delta_states(prepared.input,
                      {.initial = floats_or_null(prepared.initial),
                       .roots = floats_or_null(prepared.roots),
                       .states = brain(all.states.states),
                       .updates = brain(all.states.updates)},
                      stream);
  const DeltaGradients gradients{.dy = brain(dy),
                                 .states = brain(all.states.states),
                                 .updates = brain(all.states.updates),
                                 .dfinal = floats_or_null(dfinal),
                                 .dinitial = floats_or_null(grads.initial),
                                 .roots = floats_or_null(prepared.roots),
                                 .dstates = brain(between.dstates),
                                 .w = brain(between.w),
                                 .dq = brain(grads.q),
                                 .dk = brain(grads.k),
                                 .dv = brain(grads.v),
                                 .dg = grads.g.data<float>(),
                                 .dbeta = grads.beta.data<float>()};
  scan_delta_gradients(prepared.input, gradients, stream);
  delta_chunk_gradients(prepared.input, gradients, stream);
  return grads;
}

int64_t most_chunks(const ChunkGatedDeltaRule& op) { return op.tokens() / kChunk + op.documents.count(); }

ChunkGatedDeltaRule::Output outline_forward(const ChunkGatedDeltaRule& op, ChunkGatedDeltaRule::Wanted wanted) {
  ChunkGatedDeltaRule::Output out = ops::outline<ChunkGatedDeltaRule>().forward(op, wanted);
  const Tensor roots = roots_of(op);
  if (wanted.kept)
    out.kept = Kept(op, most_chunks(op), MemoryTag::kActivations).tensors();
  else
    const Made made(op, most_chunks(op), MemoryTag::kWorkspace);
  return out;
}
ChunkGatedDeltaRule::Grads outline_backward(const ChunkGatedDeltaRule& op, const std::vector<Tensor>& kept,
                                            const Tensor& dy, const Tensor& dfinal,
                                            ChunkGatedDeltaRule::WantedGrads wanted) {
  const Tensor roots = roots_of(op);
  if (wanted == ChunkGatedDeltaRule::WantedGrads::kInitial) {
    const Made made(op, most_chunks(op), MemoryTag::kWorkspace);
    return ops::outline<ChunkGatedDeltaRule>().backward(op, kept, dy, dfinal, wanted);
  }
  std::optional<Kept> all;
  if (kept.empty()) all.emplace(op, most_chunks(op), MemoryTag::kWorkspace);
  const Between between(op, most_chunks(op));
  return ops::outline<ChunkGatedDeltaRule>().backward(op, kept, dy, dfinal, wanted);
}

ops::Refusal accepts(const ChunkGatedDeltaRule::Signature& s, const HardwareFacts&) {
  if (s.dtype != DType::kBF16) return "dtype must be bfloat16";
  for (const auto& [name, dim] : {std::pair("key", s.key_dim), {"value", s.value_dim}})
    if (dim % 8 != 0 || dim > kMostDim)
      return fmt::format("{} heads must be a multiple of 8 and at most {} wide, are {}", name, kMostDim, dim);
  return std::nullopt;
}

std::vector<ops::Tiling> tilings(const ChunkGatedDeltaRule::Signature&) {
  std::vector<ops::Tiling> all;
  for (const int values : {64, 32})
    all.push_back({fmt::format("{} tokens x up to {} values", kChunk, values),
                   8 * static_cast<int64_t>(delta_scratch(values))});
  return all;
}

}  // namespace

void register_cuda_chunk_gated_delta_rule() {
  ops::kernels<ChunkGatedDeltaRule>().add("cuda", {.hardware = hardware::kGpu,
                                                   .accepts = accepts,
                                                   .forward = forward,
                                                   .backward = backward,
                                                   .batch_invariant = true,
                                                   .repeats = true,
                                                   .tilings = tilings,
                                                   .outline = {outline_forward, outline_backward}});
}

}  // namespace temper::backends
