// Attention through cuDNN. Documents of one length are a plain batch; others are packed ("ragged"), padded to
// few shapes on paper only. Plans know the documents' lengths from the host and read them on the device.
#include "backends/cudnn/cudnn.h"
#include "backends/cudnn/documents.h"
#include "backends/cudnn/library.h"
#include "backends/cudnn/plan.h"
#include "backends/cudnn/resident.h"
#include "backends/gpu_limits.h"

namespace temper::backends::cudnn {
namespace {

using ops::Attention;

constexpr int64_t kAlignment = 16;  // bytes, of every tensor's memory and strides
constexpr int64_t kWorkspaceAlignment = 256;

ops::Refusal accepts(const Attention::Signature& s, const HardwareFacts& facts) {
  const int capability = facts.compute_capability;
  const auto written = [&] { return fmt::format("{}.{}", capability / 10, capability % 10); };
  if (s.dtype != DType::kBF16) return "dtype must be bfloat16";
  if (capability < 90)
    return fmt::format("packed documents need compute capability 9.0 or later, this is {}", written());
  if (capability >= 120)
    return fmt::format("backward has no fixed order of sums at compute capability {}", written());
  const int64_t most = capability < 100 ? 256 : 128;
  if (s.head_dim < 8 || s.head_dim % 8 != 0 || s.head_dim > most)
    return fmt::format("head_dim must be a multiple of 8 up to {} at compute capability {}, is {}", most,
                       written(), s.head_dim);
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    return fmt::format("{} query heads are not a multiple of {} key heads", s.heads, s.kv_heads);
  if (facts.device.type == DeviceType::kCuda && library().opened == nullptr) return library().refusal;
  return std::nullopt;
}

// As it is, or a compact copy where cuDNN could not read it.
Tensor readable(const Tensor& tensor, bool compact) {
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.raw()) % kAlignment == 0 &&
                       tensor.stride(0) * size_of(tensor.dtype()) % kAlignment == 0;
  if (aligned && (!compact || tensor.is_contiguous())) return tensor;
  return tensor.clone();
}

// One call of attention, cut into documents.
struct Job {
  explicit Job(const Attention& op)
      : op(op), device(op.q.device()), documents(documents_of(op)), length(common_length(documents, op)) {
    if (documents.empty()) return;
    q = readable(op.q, length == 0);
    k = readable(op.k, length == 0);
    v = readable(op.v, length == 0);
  }

  const Attention& op;
  Device device;
  std::vector<Document> documents;
  int64_t length;  // of every document; 0: ragged
  Tensor q, k, v;
  Part all() const { return {0, documents.size()}; }
};

PlanKey key_of(const Job& job, Pass pass, Part part, bool deterministic = true) {
  const auto count = static_cast<int64_t>(part.end - part.begin);
  PlanKey key;
  key.device = job.device.index;
  key.pass = pass;
  key.dtype = job.q.dtype();
  key.deterministic = pass == Pass::kBackward && deterministic;
  key.heads = job.q.dim(1);
  key.kv_heads = job.k.dim(1);
  key.head_dim = job.q.dim(2);
  key.scale = job.op.scale;
  if (job.length > 0) {
    key.batch = count;
    key.queries = key.keys = job.length;
    key.q_stride = job.q.stride(0);
    key.k_stride = job.k.stride(0);
    key.v_stride = job.v.stride(0);
  } else {
    const Extent extent = extent_of(job.documents, part);
    key.ragged = true;
    key.batch = rounded_count(count);
    key.queries = extent.queries;
    key.keys = extent.keys;
    key.bottom_right = !extent.square;
  }
  key.window = job.op.window < key.keys ? job.op.window : 0;
  return key;
}

// A part's tokens, and where its documents stand among them.
struct Tokens {
  int64_t query = 0, queries = 0, key = 0, keys = 0;
};

Tokens tokens_of(const Job& job, Part part) {
  const Document &first = job.documents[part.begin], &last = job.documents[part.end - 1];
  return {first.query, last.query + last.queries - first.query, first.key, last.key + last.keys - first.key};
}

// What a ragged plan reads on the device. Documents that fill up the batch are empty and stand at the end.
struct Layout {
  Layout(const Job& job, Part part, PlanKey& key) {
    const Tokens tokens = tokens_of(job, part);
    std::vector<int64_t> starts_q, starts_k, queries, keys;
    for (size_t d = part.begin; d < part.end; ++d) {
      const Document& document = job.documents[d];
      starts_q.push_back(document.query - tokens.query);
      starts_k.push_back(document.key - tokens.key);
      queries.push_back(document.queries);
      keys.push_back(document.keys);
    }
    const auto batch = static_cast<size_t>(key.batch);
    starts_q.resize(batch + 1, tokens.queries);
    starts_k.resize(batch + 1, tokens.keys);
    queries.resize(batch);
    keys.resize(batch);
    key.total_queries = rounded_length(tokens.queries);
    key.total_keys = rounded_length(tokens.keys);
    // Plans also place accumulators for all heads by these offsets.
    const int64_t width = key.heads * key.head_dim;
    if (std::max(tokens.queries, tokens.keys) * width > INT32_MAX) key.offsets = DType::kI64;
    lengths_q = resident(queries, DType::kI32, job.device);
    lengths_k = resident(keys, DType::kI32, job.device);
    offsets_q = resident(scaled(starts_q, width), key.offsets, job.device);
    offsets_k = resident(scaled(starts_k, key.kv_heads * key.head_dim), key.offsets, job.device);
    offsets_lse = resident(scaled(starts_q, key.heads), key.offsets, job.device);
  }

  void place(Pointers& pointers) const {
    pointers[kLengthsQ] = lengths_q.raw();
    pointers[kLengthsK] = lengths_k.raw();
    pointers[kOffsetsQ] = offsets_q.raw();
    pointers[kOffsetsK] = offsets_k.raw();
    pointers[kOffsetsLse] = offsets_lse.raw();
  }

  static std::vector<int64_t> scaled(std::vector<int64_t> values, int64_t factor) {
    for (int64_t& value : values) value *= factor;
    return values;
  }

  Tensor lengths_q, lengths_k, offsets_q, offsets_k, offsets_lse;
};

void execute(const Job& job, Part part, PlanKey key, Pointers pointers) {
  Session& on = session(job.device);
  std::optional<Layout> layout;
  if (key.ragged) {
    layout.emplace(job, part, key);
    layout->place(pointers);
  }
  const std::lock_guard lock(on.mutex);
  const Plan& plan = plan_of(key, on);
  const Tensor workspace = Tensor::empty({plan.workspace_bytes() + kWorkspaceAlignment}, DType::kU8,
                                         MemoryTag::kWorkspace, job.device);
  const auto start = reinterpret_cast<uintptr_t>(workspace.raw());
  const auto padding = (kWorkspaceAlignment - start % kWorkspaceAlignment) % kWorkspaceAlignment;
  plan.run(pointers, static_cast<std::byte*>(workspace.raw()) + padding);
}

void* rows(const Tensor& tensor, int64_t first) {
  return static_cast<std::byte*>(tensor.raw()) + first * tensor.stride(0) * size_of(tensor.dtype());
}

// The first log of a part: by document in a plain batch, by token otherwise.
void* logs(const Job& job, const Tensor& lse, Part part) {
  return rows(lse, job.length > 0 ? static_cast<int64_t>(part.begin) : job.documents[part.begin].query);
}

Attention::Output forward(const Attention& op, bool want_lse) {
  const Job job(op);
  const Shape& shape = op.q.shape();
  Attention::Output out{Tensor::empty(shape, op.q.dtype(), MemoryTag::kActivations, job.device), {}};
  if (want_lse) {
    const auto count = static_cast<int64_t>(job.documents.size());
    const Shape logs = job.length > 0 ? Shape{count, shape[1], job.length} : Shape{shape[0], shape[1]};
    out.lse = Tensor::empty(logs, DType::kF32, MemoryTag::kActivations, job.device);
  }
  if (job.documents.empty()) return out;
  const Tokens tokens = tokens_of(job, job.all());
  Pointers pointers{};
  pointers[kQ] = rows(job.q, tokens.query);
  pointers[kK] = rows(job.k, tokens.key);
  pointers[kV] = rows(job.v, tokens.key);
  pointers[kY] = rows(out.y, tokens.query);
  if (want_lse) pointers[kLse] = logs(job, out.lse, job.all());
  execute(job, job.all(), key_of(job, want_lse ? Pass::kForward : Pass::kInference, job.all()), pointers);
  return out;
}

// A plain batch writes views of one buffer; a ragged plan keeps accumulators as wide as its outputs' strides,
// so there they are compact.
Attention::Grads make_grads(const Job& job) {
  const Tensor &q = job.op.q, &k = job.op.k;
  const auto empty = [&](int64_t tokens, int64_t heads) {
    return Tensor::empty({tokens, heads, q.dim(2)}, q.dtype(), MemoryTag::kActivations, job.device);
  };
  if (job.length == 0)
    return {empty(q.dim(0), q.dim(1)), empty(k.dim(0), k.dim(1)), empty(k.dim(0), k.dim(1))};
  const int64_t heads = q.dim(1), kv_heads = k.dim(1);
  const Tensor joined = empty(q.dim(0), heads + 2 * kv_heads);
  return {joined.narrow(1, 0, heads), joined.narrow(1, heads, kv_heads),
          joined.narrow(1, heads + kv_heads, kv_heads)};
}

// Parts of the documents, one after the other, so that the scores of a deterministic pass need not all exist
// at once.
std::vector<Part> parts_of(const Job& job) {
  const int64_t heads = job.op.q.dim(1);
  return job.length > 0 ? cut_evenly(job.documents.size(), job.length, heads, kScoreBytes)
                        : cut(job.documents, heads, kScoreBytes);
}

template <bool kDeterministic>
Attention::Grads backward(const Attention& op, const Attention::Output& out, const Tensor& dy) {
  const Job job(op);
  const Attention::Grads grads = make_grads(job);
  int64_t seen = 0;
  for (const Document& document : job.documents) seen += document.keys;
  if (seen < op.k.dim(0)) {  // keys of documents without queries
    grads.k.fill_zero();
    grads.v.fill_zero();
  }
  if (job.documents.empty()) return grads;
  const Tensor seed = readable(dy, true), y = readable(out.y, true);
  for (const Part part : kDeterministic ? parts_of(job) : std::vector<Part>{job.all()}) {
    PlanKey key = key_of(job, Pass::kBackward, part, kDeterministic);
    if (!key.ragged) {
      key.dq_stride = grads.q.stride(0);
      key.dk_stride = grads.k.stride(0);
      key.dv_stride = grads.v.stride(0);
    }
    const Tokens tokens = tokens_of(job, part);
    Pointers pointers{};
    pointers[kQ] = rows(job.q, tokens.query);
    pointers[kK] = rows(job.k, tokens.key);
    pointers[kV] = rows(job.v, tokens.key);
    pointers[kY] = rows(y, tokens.query);
    pointers[kLse] = logs(job, out.lse, part);
    pointers[kDy] = rows(seed, tokens.query);
    pointers[kDq] = rows(grads.q, tokens.query);
    pointers[kDk] = rows(grads.k, tokens.key);
    pointers[kDv] = rows(grads.v, tokens.key);
    execute(job, part, key, pointers);
  }
  return grads;
}

}  // namespace

ops::Kernel<Attention> attention_kernel() {
  return {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .backward = backward<true>};
}

ops::Kernel<Attention> nondeterministic_attention_kernel() {
  return {.hardware = hardware::kGpu,
          .accepts = accepts,
          .forward = forward,
          .backward = backward<false>,
          .deterministic = false};
}

}  // namespace temper::backends::cudnn
