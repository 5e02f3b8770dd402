#include "ops/attention/attention.h"

#include <algorithm>
#include <limits>

#include "base/tracing/trace.h"
#include "ops/attention/composition.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// 0 where query i may see key j, -inf elsewhere; [queries, keys].
Tensor make_mask(const Attention& op, int64_t queries, int64_t keys, Device device) {
  if (only_counts(device))
    return Tensor::empty({queries, keys}, DType::kF32, MemoryTag::kActivations, device);
  Tensor mask = Tensor::zeros({queries, keys}, DType::kF32);
  float* cell = mask.data<float>();
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j, ++cell) {
      const int64_t distance = i + keys - queries - j;
      if (distance < 0 || (op.window > 0 && distance >= op.window))
        *cell = -std::numeric_limits<float>::infinity();
    }
  return mask.on(device);
}

// The sinks behind the keys' scores [heads, queries, keys].
Var with_sinks(Tape& tape, const Var& scores, const Var& sinks) {
  if (!sinks.value.defined()) return scores;
  const Shape column{scores.shape()[0], scores.shape()[1], 1};
  const Var zeros =
      tape.constant(Tensor::zeros(column, DType::kF32, MemoryTag::kActivations, scores.value.device()));
  return p::concat_last(tape, scores, p::add(tape, zeros, sinks));
}

// One document: q [queries, heads, d], k [keys, kv_heads, d], v [keys, kv_heads, e] → [queries, heads, e],
// sinks [heads, 1, 1] or Var{}, all float32.
Var one_document(Tape& tape, const Var& q, const Var& k, const Var& v, const Var& sinks,
                 const Attention& op) {
  const int64_t queries = q.shape()[0], heads = q.shape()[1], dim = q.shape()[2];
  const int64_t keys = k.shape()[0], kv_heads = k.shape()[1], group = heads / kv_heads;
  const Var q_heads = p::reshape(tape, p::transpose(tape, q, 0, 1), {kv_heads, group * queries, dim});
  const Var scores = p::matmul(tape, q_heads, p::transpose(tape, k, 0, 1), {.transpose_b = true});
  const Var shaped = p::reshape(tape, p::scale(tape, scores, op.scale), {kv_heads * group, queries, keys});
  const Var masked = op.causal
                         ? p::add(tape, shaped, tape.constant(make_mask(op, queries, keys, q.value.device())))
                         : shaped;
  const Var logits = with_sinks(tape, masked, sinks);
  const Var weights = p::exp(tape, p::sub(tape, logits, p::max_last(tape, logits)));
  Var softmax = p::div(tape, weights, p::sum_last(tape, weights));
  if (sinks.value.defined()) softmax = p::narrow(tape, softmax, 2, 0, keys);
  const Var grouped = p::reshape(tape, softmax, {kv_heads, group * queries, keys});
  const Var y = p::matmul(tape, grouped, p::transpose(tape, v, 0, 1));
  return p::transpose(tape, p::reshape(tape, y, {heads, queries, v.shape()[2]}), 0, 1);
}

}  // namespace

Var compose_attention(Tape& tape, const Var& q, const Var& k, const Var& v, const Attention& op,
                      const Var& sinks) {
  const Var wide_q = p::cast(tape, q, DType::kF32), wide_k = p::cast(tape, k, DType::kF32),
            wide_v = p::cast(tape, v, DType::kF32);
  Var wide_sinks;
  if (sinks.value.defined())
    wide_sinks = p::reshape(tape, p::cast(tape, sinks, DType::kF32), {q.shape()[1], 1, 1});
  const auto starts_q = op.starts_q(), starts_k = op.starts_k();
  std::vector<Var> parts;
  for (size_t d = 0; d + 1 < starts_q.size(); ++d) {
    const int64_t q0 = starts_q[d], queries = starts_q[d + 1] - q0, k0 = starts_k[d],
                  keys = starts_k[d + 1] - k0;
    if (queries == 0) continue;
    parts.push_back(one_document(tape, p::narrow(tape, wide_q, 0, q0, queries),
                                 p::narrow(tape, wide_k, 0, k0, keys), p::narrow(tape, wide_v, 0, k0, keys),
                                 wide_sinks, op));
  }
  if (parts.empty())
    return tape.record(empty_like(q.value, {0, q.shape()[1], v.shape()[2]}), {&q, &k, &v, &sinks},
                       [](const Tensor&) {});
  return p::cast(tape, p::concat_first(tape, parts), q.dtype());
}

void check_sinks(std::string_view name, const Tensor& sinks, const Tensor& q) {
  if (!sinks.defined()) return;
  check_shape(name, "sinks", sinks, {q.dim(1)});
  if (sinks.dtype() != DType::kF32) check_dtype(name, "sinks", sinks, q.dtype());
  check_contiguous(name, "sinks", sinks);
}

namespace {

void check_documents(const Attention& op, int64_t tokens, int64_t kv_tokens) {
  constexpr auto name = Attention::kName;
  check_starts(name, "cu_seqlens_q", op.cu_seqlens_q, tokens);
  check_starts(name, "cu_seqlens_k", op.cu_seqlens_k, kv_tokens);
  check_shape(name, "cu_seqlens_k", op.cu_seqlens_k, op.cu_seqlens_q.shape());
  const auto a = op.starts_q(), b = op.starts_k();
  for (size_t i = 0; i + 1 < a.size(); ++i)
    if (b[i + 1] - b[i] < a[i + 1] - a[i])
      fail("[attention] document {} has {} queries but {} keys", i, a[i + 1] - a[i], b[i + 1] - b[i]);
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Attention& op) {
  constexpr auto name = Attention::kName;
  check_ndim(name, "q", q, 3);
  check_float(name, "q", q);
  check_ndim(name, "k", k, 3);
  check_shape(name, "k", k, {k.dim(0), k.dim(1), q.dim(2)});
  check_ndim(name, "v", v, 3);
  check_shape(name, "v", v, {k.dim(0), k.dim(1), v.dim(2)});
  if (k.dim(1) < 1 || q.dim(1) % k.dim(1) != 0)
    fail("[attention] {} query heads are not a multiple of {} key heads", q.dim(1), k.dim(1));
  for (const auto& [label, tensor] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    check_dtype(name, label, *tensor, q.dtype());
    check_contiguous(name, label, *tensor, 2);
  }
  check_documents(op, q.dim(0), k.dim(0));
  if (op.window < 0) fail("[attention] window is {}, needs 0 (none) or more", op.window);
  if (!op.causal && op.window > 0)
    fail("[attention] window is {}, needs 0 (none) where attention is not causal", op.window);
}

// Pairs of a query and a key that it sees.
double visible_pairs(const Attention& op) {
  double pairs = 0;
  for (size_t i = 0; i + 1 < op.starts_q().size(); ++i) {
    const double queries = op.starts_q()[i + 1] - op.starts_q()[i],
                 keys = op.starts_k()[i + 1] - op.starts_k()[i];
    const double all = queries * keys - (op.causal ? queries * (queries - 1) / 2 : 0);
    pairs += op.window > 0 ? std::min(all, queries * static_cast<double>(op.window)) : all;
  }
  return pairs;
}

// Two products of each pair and head forward; backward makes the scores again and has four more.
trace::OpWork work(const Attention& op, const Tensor& q, const Tensor& k, const Tensor& v) {
  const double pairs = 2 * visible_pairs(op) * static_cast<double>(q.dim(1));
  const double of_keys = pairs * static_cast<double>(q.dim(2)),
               of_values = pairs * static_cast<double>(v.dim(2));
  const auto in = static_cast<double>(q.bytes() + k.bytes() + v.bytes()),
             out = static_cast<double>(q.bytes() / q.dim(2) * v.dim(2));
  return {{of_keys + of_values, in + out}, {3 * of_keys + 2 * of_values, 2 * in + 2 * out}};
}

}  // namespace

Var attention(Tape& tape, Bound<Attention> bound, const Var& q, const Var& k, const Var& v, Attention op,
              const Var& sinks) {
  check(q.value, k.value, v.value, op);
  check_sinks(Attention::kName, sinks.value, q.value);
  const trace::Span span(Attention::kName, [&] { return work(op, q.value, k.value, v.value); });
  const auto& kernel = *bound;
  invariant(op.causal || kernel.compose != nullptr || kernel.traits.sees_all_keys,
            "attention that is not causal is in the signature");
  if (kernel.compose != nullptr)
    return observed(Attention::kName, Tensor(), kernel.compose(tape, q, k, v, op, sinks));
  op.q = q.value;
  op.k = k.value;
  op.v = v.value;
  op.sinks = sinks.value;
  const bool wants_grad = tape.recording() && (q.requires_grad() || k.requires_grad() || v.requires_grad() ||
                                               sinks.requires_grad());
  const Attention::Output out = kernel.forward(op, wants_grad);
  op.q = op.k = {};
  const Var result = tape.record(out.y, {&q, &k, &v, &sinks},
                                 [op, out, saved_q = q.saved(), saved_k = k.saved(), q = q.slot, k = k.slot,
                                  v = v.slot, sinks = sinks.slot, &kernel](const Tensor& dy) {
                                   Attention again = op;
                                   again.q = saved_q.get();
                                   again.k = saved_k.get();
                                   const Attention::Grads grads =
                                       kernel.backward(again, out, dy.contiguous());
                                   if (q) q->add(grads.q);
                                   if (k) k->add(grads.k);
                                   if (v) v->add(grads.v);
                                   if (sinks) sinks->add(grads.sinks);
                                 });
  return observed(Attention::kName, Tensor(), result);
}

namespace {

Attention::Output outline_forward(const Attention& op, bool want_lse) {
  return {empty_like(op.q, {op.q.dim(0), op.q.dim(1), op.v.dim(2)}),
          want_lse ? empty_like(op.q, {op.q.dim(1), op.q.dim(0)}, DType::kF32) : Tensor()};
}

Attention::Grads outline_backward(const Attention& op, const Attention::Output& out, const Tensor&) {
  Attention::Grads grads{empty_like(out.y, op.q.shape()), empty_like(out.y, op.k.shape()),
                         empty_like(out.y, op.v.shape())};
  if (op.sinks.defined()) grads.sinks = empty_like(out.y, op.sinks.shape(), DType::kF32);
  return grads;
}

Tensor outline_paged(const PagedAttention& op) { return empty_like(op.q, op.q.shape()); }

}  // namespace

Refusal refuse_sinks(bool sinks) {
  if (!sinks) return std::nullopt;
  return "has no sinks in the softmax";
}

Refusal refuse_all_keys(bool causal) {
  if (causal) return std::nullopt;
  return "is causal: queries do not see the keys behind them";
}

Probe attention_probe, paged_attention_probe;

void register_attention() {
  register_op<Attention>(
      compose_attention, attention_probe, {outline_forward, outline_backward},
      {.cpu = {{{"onednn", "onednn"}, {"flash_attention_2", "onednn"}, {"sdpa", "onednn"}}},
       .gpu = {{{"hopper", "hopper", "", 90},
                {"cudnn", "cudnn"},
                {"flash_attention_2", "cudnn"},
                {"flash_attention_3", "cudnn", "", 90},
                {"sdpa", "cudnn"},
                {"cudnn_nondeterministic", "cudnn_nondeterministic"},
                {"cuda", "cuda"}}},
       .npu = {{{"flash_attention_2", "npu"}}, true}});
  register_op<PagedAttention>(compose_paged_attention, paged_attention_probe, {outline_paged},
                              {.cpu = {{{"onednn", "onednn"}, {"onednn_invariant", "onednn_invariant"}}},
                               .gpu = {{{"cuda", "cuda"}, {"cuda_float32", "cuda_float32"}}}});
}

}  // namespace temper::ops
