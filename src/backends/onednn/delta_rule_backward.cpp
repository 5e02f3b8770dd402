// The gated delta rule, backward: states before each chunk are computed again, then chunks and documents in
// reverse order.
#include "backends/onednn/delta_rows.h"
#include "backends/onednn/delta_rule.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

using ops::ChunkGatedDeltaRule;

int64_t chunks_of(const ChunkGatedDeltaRule& op, int64_t tokens) {
  return (tokens + delta_chunk(op) - 1) / delta_chunk(op);
}

// Of [key_dim, value_dim], one for each value head of the key head.
int64_t states_size(const ChunkGatedDeltaRule& op) { return op.group() * op.key_dim() * op.value_dim(); }

struct Family {
  const ChunkGatedDeltaRule& op;
  const DeltaFamily& documents;
  int64_t chunks = 0;  // of all documents

  Family(const ChunkGatedDeltaRule& op, const DeltaFamily& documents) : op(op), documents(documents) {
    for (const int64_t document : documents) chunks += chunks_of(op, op.documents.length(document));
  }
  // States before each chunk, that which is shared, gradients of a state and of the shared one and of the
  // chunk's beginning; then a chunk's own.
  int64_t floats() const {
    return (chunks + 5) * states_size(op) + DeltaChunks::floats(op) +
           delta_chunk(op) * (5 * kDeltaStride + 4 * op.value_dim() + 3 * op.key_dim() + 4);
  }
};

// What a chunk's gradients are formed in.
struct Work {
  float *p, *dp, *g, *along;   // [size, size]: P, dP, db uᵀ, and what decays are made of
  float* both;                 // [size, size]: gradients of k̂·k̂ and q̂·k̂, one after the other
  float *dy, *du, *x, *qs;     // [size, value_dim]
  float *dq, *dk, *dkept;      // [size, key_dim]
  float *dstart, *dbeta, *dg;  // [size]
  float* dlast;                // [size], of D_L
};

// u := (I - N)⁻ᵀ u.
void solve_transposed(const float* n, float* u, int64_t size, int64_t width) {
  constexpr int64_t kBlock = 16;
  for (int64_t begin = (size - 1) / kBlock * kBlock; begin >= 0; begin -= kBlock) {
    const int64_t end = std::min(size, begin + kBlock);
    if (end < size)
      delta_product({n + end * kDeltaStride + begin, kDeltaStride, true}, {u + end * width, width},
                    {end - begin, width, size - end}, u + begin * width, width, true);
    delta_rows::solve({n, 1, kDeltaStride, begin, end, true}, u, width);
  }
}

// dx of x̂ = x · scale, where x̂ is normed; `grad` becomes it.
void norm_backward(const float* normed, const float* scales, float* grad, int64_t rows, int64_t size) {
  for (int64_t row = 0; row < rows; ++row, normed += size, grad += size) {
    const float along = delta_rows::dot(normed, grad, size);
    delta_rows::add_scaled(normed, -along, grad, size);
    delta_rows::scale(grad, scales[row], grad, size);
  }
}

// [group, key_dim, value_dim] each.
struct States {
  float* before_chunks;     // one for each
  float *shared, *running;  // room for one
};

void find_states(const Family& family, int64_t key_head, DeltaChunks& chunks, const States& states) {
  const ChunkGatedDeltaRule& op = family.op;
  const int64_t size = states_size(op), one = op.key_dim() * op.value_dim();
  if (op.initial.defined())
    std::copy_n(op.initial.data<float>() + family.documents.front() * op.heads() * one + key_head * size,
                size, states.shared);
  else
    std::fill_n(states.shared, size, 0.f);
  float* to = states.before_chunks;
  for (const int64_t document : family.documents) {
    std::copy_n(states.shared, size, states.running);
    const int64_t begin = op.documents.start(document), end = begin + op.documents.length(document);
    for (int64_t first = begin; first < end; first += delta_chunk(op), to += size) {
      std::copy_n(states.running, size, to);
      chunks.load_keys(key_head, first, std::min(delta_chunk(op), end - first));
      for (int64_t h = 0; h < op.group(); ++h) {
        chunks.load_values(key_head * op.group() + h, states.running + h * one);
        chunks.advance(states.running + h * one);
      }
    }
    if (document == family.documents.front()) std::copy_n(states.running, size, states.shared);
  }
}

class Backward {
 public:
  Backward(const Family& family, const ChunkGatedDeltaRule::Grads& grads, const Tensor& dy,
           const Tensor& dfinal, int64_t key_head)
      : op_(family.op),
        family_(family),
        grads_(grads),
        dy_(dy),
        dfinal_(dfinal),
        key_head_(key_head),
        size_(states_size(op_)),
        one_(op_.key_dim() * op_.value_dim()),
        scratch_(family.floats()),
        chunks_(op_, scratch_) {
    states_ = scratch_.take(family.chunks * size_);
    shared_ = scratch_.take(size_);
    running_ = scratch_.take(size_);
    dstate_ = scratch_.take(size_);
    dshared_ = scratch_.take(size_);
    dbefore_ = scratch_.take(size_);
    const auto rows = [&](int64_t size) { return scratch_.take(delta_chunk(op_) * size); };
    w_ = {rows(kDeltaStride),
          rows(kDeltaStride),
          rows(kDeltaStride),
          rows(kDeltaStride),
          rows(kDeltaStride),
          rows(op_.value_dim()),
          rows(op_.value_dim()),
          rows(op_.value_dim()),
          rows(op_.value_dim()),
          rows(op_.key_dim()),
          rows(op_.key_dim()),
          rows(op_.key_dim()),
          rows(1),
          rows(1),
          rows(1),
          rows(1)};
  }

  // `states_alone`: of the initial states, whose gradients depend on no state.
  void run(bool states_alone) {
    if (!states_alone) find_states(family_, key_head_, chunks_, {states_, shared_, running_});
    std::fill_n(dshared_, size_, 0.f);
    int64_t chunk = family_.chunks;
    for (auto document = family_.documents.rbegin(); document != family_.documents.rend(); ++document) {
      const bool root = *document == family_.documents.front();
      if (dfinal_.defined())
        std::copy_n(at(dfinal_, *document), size_, dstate_);
      else
        std::fill_n(dstate_, size_, 0.f);
      if (root) add(dshared_, dstate_);
      const int64_t begin = op_.documents.start(*document), tokens = op_.documents.length(*document);
      for (int64_t i = chunks_of(op_, tokens) - 1; i >= 0; --i) {
        const int64_t first = begin + i * delta_chunk(op_);
        const int64_t size = std::min(delta_chunk(op_), begin + tokens - first);
        states_alone ? run_states(first, size) : run_chunk(first, size, states_ + --chunk * size_);
      }
      if (!root) add(dstate_, dshared_);
      if (!grads_.initial.defined()) continue;
      float* const to = at(grads_.initial, *document);
      if (root)
        std::copy_n(dstate_, size_, to);
      else
        std::fill_n(to, size_, 0.f);
    }
  }

 private:
  float* at(const Tensor& all, int64_t document) const {
    return all.data<float>() + document * op_.heads() * one_ + key_head_ * size_;
  }
  void add(const float* from, float* to) const { delta_rows::add_scaled(from, 1, to, size_); }

  void run_chunk(int64_t first, int64_t size, const float* states) {
    const int64_t dim = op_.key_dim();
    chunks_.load_keys(key_head_, first, size);
    std::fill_n(w_.dq, size * dim, 0.f);
    std::fill_n(w_.dk, size * dim, 0.f);
    for (int64_t h = 0; h < op_.group(); ++h) {
      const int64_t head = key_head_ * op_.group() + h;
      chunks_.load_values(head, states + h * one_);
      load_gradient(head);
      to_updates(dstate_ + h * one_);
      from_results(states + h * one_, dstate_ + h * one_);
      from_updates(head, states + h * one_);
      from_decays(head);
      std::copy_n(dbefore_, one_, dstate_ + h * one_);
    }
    const KeyChunk& keys = chunks_.keys();
    if (op_.norms) {
      norm_backward(keys.q, keys.q_scale, w_.dq, size, dim);
      norm_backward(keys.k, keys.k_scale, w_.dk, size, dim);
    }
    copy_block({w_.dq, DType::kF32, dim}, heads_at(grads_.q, first, key_head_), size, dim);
    copy_block({w_.dk, DType::kF32, dim}, heads_at(grads_.k, first, key_head_), size, dim);
  }

  // Of the state before the chunk alone.
  void run_states(int64_t first, int64_t size) {
    chunks_.load_keys(key_head_, first, size);
    for (int64_t h = 0; h < op_.group(); ++h) {
      const int64_t head = key_head_ * op_.group() + h;
      chunks_.load_transition(head);
      load_gradient(head);
      to_updates(dstate_ + h * one_);
      to_state(head);
      std::copy_n(dbefore_, one_, dstate_ + h * one_);
    }
  }

  void load_gradient(int64_t head) {
    const KeyChunk& keys = chunks_.keys();
    const int64_t dim = op_.value_dim();
    copy_block(heads_at(dy_, keys.first, head), {w_.dy, DType::kF32, dim}, keys.size, dim);
    delta_rows::scale(w_.dy, op_.scale, w_.dy, keys.size * dim);
  }

  // Y = diag(e) Q̂ S + P U and S' = e_L S + keptᵀ U: the gradient of U, and what they give to that of S.
  void to_updates(const float* dstate) {
    const KeyChunk& keys = chunks_.keys();
    const ValueChunk& values = chunks_.values();
    const int64_t size = keys.size, key_dim = op_.key_dim(), dim = op_.value_dim();
    for (int64_t t = 0; t < size; ++t)
      delta_rows::scale(w_.dy + t * dim, values.start[t], w_.x + t * dim, dim);
    delta_rows::scale(dstate, values.start[size - 1], dbefore_, one_);
    delta_product({keys.q, key_dim, true}, {w_.x, dim}, {key_dim, dim, size}, dbefore_, dim, true);
    chunks_.mix(w_.p);
    delta_product({w_.p, kDeltaStride, true}, {w_.dy, dim}, {size, dim, size}, w_.du, dim);
    delta_product({values.kept, key_dim}, {dstate, dim}, {size, dim, key_dim}, w_.du, dim, true);
  }

  // The same: gradients of Q̂, P, e and kept.
  void from_results(const float* state, const float* dstate) {
    const KeyChunk& keys = chunks_.keys();
    const ValueChunk& values = chunks_.values();
    const int64_t size = keys.size, key_dim = op_.key_dim(), dim = op_.value_dim();
    delta_product({keys.q, key_dim}, {state, dim}, {size, dim, key_dim}, w_.qs, dim);
    for (int64_t t = 0; t < size; ++t) w_.dstart[t] = delta_rows::dot(w_.dy + t * dim, w_.qs + t * dim, dim);
    w_.dstart[size - 1] += delta_rows::dot(dstate, state, one_);
    delta_product({w_.x, dim}, {state, dim, true}, {size, key_dim, dim}, w_.dq, key_dim, true);
    delta_product({w_.dy, dim}, {values.u, dim, true}, {size, size, dim}, w_.dp, kDeltaStride);
    delta_product({values.u, dim}, {dstate, dim, true}, {size, key_dim, dim}, w_.dkept, key_dim);
    const float* const last = values.decay + (size - 1) * kDeltaStride;
    for (int64_t s = 0; s < size; ++s) {
      const int64_t row = s * key_dim;
      w_.dlast[s] = delta_rows::dot(w_.dkept + row, keys.k + row, key_dim);
      delta_rows::add_scaled(w_.dkept + row, last[s], w_.dk + row, key_dim);
    }
  }

  // U = (I + A)⁻¹ B with B = diag(beta) (V - diag(e) K̂ S): the gradient of B, and what it gives to that of S.
  void to_state(int64_t head) {
    const KeyChunk& keys = chunks_.keys();
    const ValueChunk& values = chunks_.values();
    const int64_t size = keys.size, key_dim = op_.key_dim(), dim = op_.value_dim();
    solve_transposed(values.n, w_.du, size, dim);
    for (int64_t t = 0; t < size; ++t)
      delta_rows::scale(w_.du + t * dim, -chunks_.beta(head, t) * values.start[t], w_.x + t * dim, dim);
    delta_product({keys.k, key_dim, true}, {w_.x, dim}, {key_dim, dim, size}, dbefore_, dim, true);
  }

  // The same: gradients of V, beta, K̂, e and A.
  void from_updates(int64_t head, const float* state) {
    to_state(head);
    const KeyChunk& keys = chunks_.keys();
    const ValueChunk& values = chunks_.values();
    const int64_t size = keys.size, key_dim = op_.key_dim(), dim = op_.value_dim();
    delta_product({w_.du, dim}, {values.u, dim, true}, {size, size, dim}, w_.g, kDeltaStride);
    for (int64_t t = 0; t < size; ++t) {
      const float beta = chunks_.beta(head, t), start = values.start[t];
      float* const du = w_.du + t * dim;
      const float of_known = delta_rows::dot(du, values.known + t * dim, dim);
      w_.dbeta[t] = delta_rows::dot(du, values.v + t * dim, dim) - start * of_known;
      w_.dstart[t] -= beta * of_known;
      delta_rows::scale(du, beta, du, dim);
    }
    copy_block({w_.du, DType::kF32, dim}, heads_at(grads_.v, keys.first, head), size, dim);
    delta_product({w_.x, dim}, {state, dim, true}, {size, key_dim, dim}, w_.dk, key_dim, true);
  }

  // A_ts = beta_t D_ts k̂_t·k̂_s and P_ts = D_ts q̂_t·k̂_s: gradients of beta, Q̂, K̂ and g.
  void from_decays(int64_t head) {
    const KeyChunk& keys = chunks_.keys();
    const ValueChunk& values = chunks_.values();
    const int64_t size = keys.size, dim = op_.key_dim();
    float* const of_kk = w_.both;
    float* const of_qk = w_.p;
    for (int64_t t = 0; t < size; ++t) {
      const int64_t row = t * kDeltaStride;
      w_.dbeta[t] += delta_rows::decay_row({.dp = w_.dp + row,
                                            .g = w_.g + row,
                                            .decay = values.decay + row,
                                            .kk = keys.kk + row,
                                            .qk = keys.qk + row,
                                            .dlast = t == size - 1 ? w_.dlast : nullptr,
                                            .of_kk = of_kk + row,
                                            .of_qk = of_qk + row,
                                            .along = w_.along + row,
                                            .beta = chunks_.beta(head, t)},
                                           t);
      of_qk[row + t] = w_.dp[row + t];  // D_tt is 1
      of_kk[row + t] = 0;
      std::fill(of_qk + row + t + 1, of_qk + row + size, 0.f);
      std::fill(of_kk + row + t + 1, of_kk + row + size, 0.f);
    }
    const Operand k{keys.k, dim};
    delta_product({of_kk, kDeltaStride}, k, {size, dim, size}, w_.dk, dim, true);
    delta_product({of_kk, kDeltaStride, true}, k, {size, dim, size}, w_.dk, dim, true);
    delta_product({of_qk, kDeltaStride}, k, {size, dim, size}, w_.dq, dim, true);
    delta_product({of_qk, kDeltaStride, true}, {keys.q, dim}, {size, dim, size}, w_.dk, dim, true);
    write_gates(head);
  }

  // g_i is in D_ts for s < i ≤ t, and in e_t for i ≤ t: from the last on, sums over t of both.
  void write_gates(int64_t head) {
    const KeyChunk& keys = chunks_.keys();
    float* const over_t = w_.dlast;  // of D_ts, by s
    float of_starts = 0;
    std::fill_n(over_t, keys.size, 0.f);
    for (int64_t i = keys.size - 1; i >= 0; --i) {
      of_starts += w_.dstart[i] * chunks_.values().start[i];
      delta_rows::add_scaled(w_.along + i * kDeltaStride, 1, over_t, i);
      w_.dg[i] = of_starts + delta_rows::sum(over_t, i);
    }
    for (int64_t t = 0; t < keys.size; ++t) {
      const int64_t i = (keys.first + t) * op_.heads() + head;
      grads_.g.data<float>()[i] = w_.dg[t];
      grads_.beta.data<float>()[i] = w_.dbeta[t];
    }
  }

  const ChunkGatedDeltaRule& op_;
  const Family& family_;
  const ChunkGatedDeltaRule::Grads& grads_;
  const Tensor &dy_, &dfinal_;
  int64_t key_head_, size_, one_;
  Scratch scratch_;
  DeltaChunks chunks_;
  float *states_, *shared_, *running_, *dstate_, *dshared_, *dbefore_;
  Work w_;
};

}  // namespace

ChunkGatedDeltaRule::Grads delta_rule_backward(const ChunkGatedDeltaRule& op, const std::vector<Tensor>&,
                                               const Tensor& dy, const Tensor& dfinal,
                                               ChunkGatedDeltaRule::WantedGrads wanted) {
  const auto like = [](const Tensor& x) { return Tensor::empty(x.shape(), x.dtype()); };
  const bool states_alone = wanted == ChunkGatedDeltaRule::WantedGrads::kInitial;
  ChunkGatedDeltaRule::Grads grads;
  if (!states_alone) grads = {like(op.q), like(op.k), like(op.v), like(op.g), like(op.beta), {}};
  if (states_alone || op.initial.defined()) grads.initial = Tensor::empty(op.state_shape(), DType::kF32);
  const std::vector<DeltaFamily> families = delta_families(op.documents);
  parallel_for(std::ssize(families) * op.key_heads(), [&](int64_t i) {
    const Family family(op, families[static_cast<size_t>(i / op.key_heads())]);
    Backward(family, grads, dy, dfinal, i % op.key_heads()).run(states_alone);
  });
  return grads;
}

ChunkGatedDeltaRule::Grads outline_delta_rule_backward(const ChunkGatedDeltaRule& op,
                                                       const std::vector<Tensor>& kept, const Tensor& dy,
                                                       const Tensor& dfinal,
                                                       ChunkGatedDeltaRule::WantedGrads wanted) {
  const auto grads = ops::outline<ChunkGatedDeltaRule>().backward(op, kept, dy, dfinal, wanted);
  std::vector<int64_t> bytes;
  for (const DeltaFamily& documents : delta_families(op.documents))
    bytes.insert(bytes.end(), static_cast<size_t>(op.key_heads()),
                 TaskMemory::pooled_bytes(Family(op, documents).floats()));
  hold_largest(std::move(bytes), op.q.device());
  return grads;
}

}  // namespace temper::backends
