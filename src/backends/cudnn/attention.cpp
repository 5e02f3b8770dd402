// Attention through cuDNN. Documents of one length are a plain batch; others are packed ("ragged"), padded to
// few shapes on paper only. Plans know the documents' lengths from the host and read them on the device.
#include "ops/attention/attention.h"
#include "backends/cudnn/library.h"
#include "backends/cudnn/packing.h"
#include "backends/cudnn/padded_backward.h"
#include "backends/gpu/attention_operands.h"
#include "backends/gpu/attention_shapes.h"

namespace temper::backends::cudnn {
namespace {

using ops::Attention;

constexpr int64_t kWorkspaceAlignment = 256;

ops::Refusal missing(const HardwareFacts& facts) {
  if (facts.device.type == DeviceType::kCuda && library().opened == nullptr) return library().refusal;
  return std::nullopt;
}

// One call of attention.
struct Job {
  Job(const Attention& op, bool cut)
      : op(op), device(op.q.device()), packing(packing_of(op, cut)), pieces(pieces_of(packing)) {
    if (pieces.all.empty()) return;
    const bool compact = ragged();
    q = readable(op.q, compact);
    k = readable(op.k, compact);
    v = readable(op.v, compact);
  }
  bool ragged() const { return pieces.all.empty() || pieces.all.front().ragged; }

  const Attention& op;
  Device device;
  Packing packing;
  Pieces pieces;
  Tensor q, k, v;
};

PlanKey key_of(const Job& job, Pass pass, const Piece& piece, bool deterministic = true) {
  PlanKey key;
  key.device = job.device.index;
  key.pass = pass;
  key.dtype = job.q.dtype();
  key.deterministic = pass == Pass::kBackward && deterministic;
  key.heads = job.packing.heads;
  key.kv_heads = job.packing.kv_heads;
  key.head_dim = job.packing.head_dim;
  key.value_dim = job.packing.value_dim;
  key.scale = job.op.scale;
  key.batch = piece.batch;
  key.queries = piece.queries;
  key.keys = piece.keys;
  key.window = job.op.window < key.keys ? job.op.window : 0;
  if (piece.ragged) {
    key.ragged = true;
    key.bottom_right = piece.bottom_right;
    key.total_queries = piece.total_queries;
    key.total_keys = piece.total_keys;
    if (piece.wide_offsets) key.offsets = DType::kI64;
  } else {
    key.q_stride = job.q.stride(0);
    key.k_stride = job.k.stride(0);
    key.v_stride = job.v.stride(0);
  }
  return key;
}

// On a device that only counts memory, where plans are made without the library: the workspace of backward
// plans, except a few KiB. Deterministic passes keep all scores of a piece, others float32 sums for the
// queries' gradient. Of heads that share keys each has float32 gradients of its own for them. And a float32
// for each query and head.
void hold_workspace(const PlanKey& key, Device device) {
  if (key.pass != Pass::kBackward) return;
  const int64_t queries = key.ragged ? key.total_queries : key.batch * key.queries,
                keys = key.ragged ? key.total_keys : key.batch * key.keys,
                row = key.head_dim * size_of(DType::kF32);
  const int64_t of_queries =
      key.deterministic ? key.batch * key.queries * key.keys * size_of(key.dtype) : queries * row;
  const int64_t of_keys = key.heads == key.kv_heads ? 0 : 2 * keys * row;
  Tensor::empty({key.heads * (of_queries + of_keys + queries * size_of(DType::kF32))}, DType::kU8,
                MemoryTag::kWorkspace, device);
}

void execute(const Job& job, size_t index, const PlanKey& key, Pointers pointers) {
  if (only_counts(job.device)) return hold_workspace(key, job.device);
  Session& on = session(job.device);
  Lists lists;
  if (key.ragged) {
    lists = lists_of(job.packing, index, job.pieces.all[index], job.device);
    pointers[kLengthsQ] = lists.queries.raw();
    pointers[kLengthsK] = lists.keys.raw();
    pointers[kOffsetsQ] = lists.starts_q.raw();
    pointers[kOffsetsK] = lists.starts_k.raw();
    if (!key.one_width()) {
      pointers[kOffsetsY] = lists.starts_y.raw();
      pointers[kOffsetsV] = lists.starts_v.raw();
    }
    pointers[kOffsetsLse] = lists.starts_logs.raw();
  }
  const std::lock_guard lock(on.mutex);
  use_current_stream(on);
  const Plan& plan = plan_of(key, on);
  const Tensor workspace = Tensor::empty({plan.workspace_bytes() + kWorkspaceAlignment}, DType::kU8,
                                         MemoryTag::kWorkspace, job.device);
  const auto start = reinterpret_cast<uintptr_t>(workspace.raw());
  const auto padding = (kWorkspaceAlignment - start % kWorkspaceAlignment) % kWorkspaceAlignment;
  plan.run(pointers, static_cast<std::byte*>(workspace.raw()) + padding);
}

// The first log of a piece: by document in a plain batch, by token otherwise.
void* logs(const Tensor& lse, const Piece& piece) {
  return rows(lse, piece.ragged ? piece.first_query : piece.first_document);
}

Attention::Output forward(const Attention& op, bool want_lse) {
  const Job job(op, false);
  const Shape& shape = op.q.shape();
  Attention::Output out{
      Tensor::empty({shape[0], shape[1], op.v.dim(2)}, op.q.dtype(), MemoryTag::kActivations, job.device),
      {}};
  if (job.pieces.all.empty()) {
    if (want_lse)
      out.lse = Tensor::empty({shape[0], shape[1]}, DType::kF32, MemoryTag::kActivations, job.device);
    return out;
  }
  const Piece& piece = job.pieces.all.front();
  if (want_lse) {
    const Shape logs = piece.ragged ? Shape{shape[0], shape[1]} : Shape{piece.batch, shape[1], piece.queries};
    out.lse = Tensor::empty(logs, DType::kF32, MemoryTag::kActivations, job.device);
  }
  Pointers pointers{};
  pointers[kQ] = rows(job.q, piece.first_query);
  pointers[kK] = rows(job.k, piece.first_key);
  pointers[kV] = rows(job.v, piece.first_key);
  pointers[kY] = rows(out.y, piece.first_query);
  if (want_lse) pointers[kLse] = logs(out.lse, piece);
  execute(job, 0, key_of(job, want_lse ? Pass::kForward : Pass::kInference, piece), pointers);
  return out;
}

template <bool kDeterministic>
Attention::Grads backward(const Attention& op, const Attention::Output& out, const Tensor& dy) {
  if (is_padded_backward(op)) return padded_backward(op, out, dy, backward<kDeterministic>);
  const Job job(op, kDeterministic);
  // A ragged plan keeps accumulators as wide as its outputs' strides, so there they are compact.
  const Attention::Grads grads = empty_gradients(op, !job.ragged());
  if (!job.pieces.seen) {  // keys of documents without queries
    grads.k.fill_zero();
    grads.v.fill_zero();
  }
  if (job.pieces.all.empty()) return grads;
  const Tensor seed = readable(dy, true), y = readable(out.y, true);
  for (size_t i = 0; i < job.pieces.all.size(); ++i) {
    const Piece& piece = job.pieces.all[i];
    PlanKey key = key_of(job, Pass::kBackward, piece, kDeterministic);
    if (!key.ragged) {
      key.dq_stride = grads.q.stride(0);
      key.dk_stride = grads.k.stride(0);
      key.dv_stride = grads.v.stride(0);
    }
    Pointers pointers{};
    pointers[kQ] = rows(job.q, piece.first_query);
    pointers[kK] = rows(job.k, piece.first_key);
    pointers[kV] = rows(job.v, piece.first_key);
    pointers[kY] = rows(y, piece.first_query);
    pointers[kLse] = logs(out.lse, piece);
    pointers[kDy] = rows(seed, piece.first_query);
    pointers[kDq] = rows(grads.q, piece.first_query);
    pointers[kDk] = rows(grads.k, piece.first_key);
    pointers[kDv] = rows(grads.v, piece.first_key);
    execute(job, i, key, pointers);
  }
  return grads;
}

}  // namespace

// Of the kernels, the first gives the same bits every time; on compute capability 9.x its backward writes the
// gradient of all scores to memory, heads · queries · keys · 2 bytes for each document. The other sums the
// queries' gradients in whatever order blocks finish: faster, and never chosen unless it is written. `cuda`
// serves where these do not.
void register_cudnn_attention() {
  ops::kernels<Attention>().add_before("cuda", "cudnn",
                                       {.hardware = hardware::kGpu,
                                        .accepts = refuse_packed_attention,
                                        .forward = forward,
                                        .backward = backward<true>,
                                        .missing = missing,
                                        .repeats = true,
                                        .outline = {forward, backward<true>}});
  ops::kernels<Attention>().add_before("cuda", "cudnn_nondeterministic",
                                       {.hardware = hardware::kGpu,
                                        .accepts = refuse_packed_attention,
                                        .forward = forward,
                                        .backward = backward<false>,
                                        .missing = missing,
                                        .deterministic = false,
                                        .repeats = true,
                                        .outline = {forward, backward<false>}});
}

}  // namespace temper::backends::cudnn
