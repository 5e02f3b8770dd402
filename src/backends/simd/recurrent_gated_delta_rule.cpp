#include <algorithm>
#include <cmath>

#include "backends/floats.h"
#include "base/threads/threads.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/recurrent_gated_delta_rule.cpp"
#include <hwy/foreach_target.h>

#include "backends/simd/squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

template <class T>
void load_key(const T* from, int64_t size, const ops::RecurrentGatedDeltaRule& op, float* to) {
  convert(from, to, size);
  if (!op.norms) return;
  const Lanes scale = fill(1 / std::sqrt(square_sum(to, size) + op.eps));
  sweep(size,
        [&](int64_t i, auto lanes) HWY_ATTR { store(hn::Mul(load(to + i, lanes), scale), to + i, lanes); });
}

// One value head of one token. `memory`: q, k [key_dim], then what the state knows and y [value_dim].
void step(const ops::RecurrentGatedDeltaRule& op, const Tensor& y, int64_t token, int64_t slot, int64_t head,
          float* memory) {
  const int64_t key_dim = op.q.dim(2), dim = op.v.dim(2), heads = op.v.dim(1);
  const int64_t key_head = head / (heads / op.q.dim(1)), gate = token * heads + head;
  float *const q = memory, *const k = q + key_dim, *const known = k + key_dim, *const out = known + dim;
  float* const state = op.state.data<float>() + (slot * heads + head) * key_dim * dim;
  visit_wide(op.q.dtype(), [&]<class T>() HWY_ATTR {
    load_key(op.q.data<T>() + token * op.q.stride(0) + key_head * key_dim, key_dim, op, q);
    load_key(op.k.data<T>() + token * op.k.stride(0) + key_head * key_dim, key_dim, op, k);
    const T* v = op.v.data<T>() + token * op.v.stride(0) + head * dim;
    const Lanes decay = fill(std::exp(op.g.data<float>()[gate])), beta = fill(op.beta.data<float>()[gate]);
    sweep(dim, [&](int64_t e, auto lanes) HWY_ATTR {
      Lanes sum = none();
      for (int64_t i = 0; i < key_dim; ++i)
        sum = hn::MulAdd(hn::Mul(decay, load(state + i * dim + e, lanes)), fill(k[i]), sum);
      const Lanes u = hn::Mul(beta, hn::Sub(load(v + e, lanes), sum));
      Lanes read = none();
      for (int64_t i = 0; i < key_dim; ++i) {
        float* const at = state + i * dim + e;
        const Lanes moved = hn::MulAdd(u, fill(k[i]), hn::Mul(decay, load(at, lanes)));
        store(moved, at, lanes);
        read = hn::MulAdd(moved, fill(q[i]), read);
      }
      store(hn::Mul(read, fill(op.scale)), out + e, lanes);
    });
    convert(out, y.data<T>() + gate * dim, dim);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::RecurrentGatedDeltaRule;
HWY_EXPORT(step);

constexpr int64_t kSmallTask = 1 << 14;  // elements of states, in all steps

// Calls f(sequence, head, memory of step) for all of them.
template <class F>
void for_each_head(const RecurrentGatedDeltaRule& op, F f) {
  const int64_t heads = op.v.dim(1), steps = op.v.dim(0) / std::max<int64_t>(1, op.sequences()),
                each = op.q.dim(2) * op.v.dim(2) * std::max<int64_t>(1, steps);
  parallel_ranges(op.sequences() * heads, std::max<int64_t>(1, kSmallTask / each),
                  [&](int64_t begin, int64_t end) {
                    std::vector<float> memory(static_cast<size_t>(2 * (op.q.dim(2) + op.v.dim(2))));
                    for (int64_t i = begin; i < end; ++i) f(i / heads, i % heads, memory.data());
                  });
}

// Those that continue another, or those that do not.
void run_documents(const RecurrentGatedDeltaRule& op, const Tensor& y, bool continuing) {
  for_each_head(op, [&](int64_t document, int64_t head, float* memory) {
    const int64_t before = op.documents.continues(document);
    if ((before >= 0) != continuing) return;
    if (continuing)
      op.state.narrow(0, document, 1)
          .narrow(1, head, 1)
          .copy_from(op.state.narrow(0, before, 1).narrow(1, head, 1));
    for (int64_t t = op.documents.start(document); t < op.documents.start(document + 1); ++t)
      HWY_DYNAMIC_DISPATCH(step)(op, y, t, document, head, memory);
  });
}

Tensor run_forward(const RecurrentGatedDeltaRule& op) {
  const Tensor y = Tensor::empty(op.v.shape(), op.v.dtype());
  if (op.by_documents()) {
    run_documents(op, y, false);
    if (op.documents.continued.defined()) run_documents(op, y, true);
    return y;
  }
  const int32_t* const slots = op.slots.defined() ? op.slots.data<int32_t>() : nullptr;
  for_each_head(op, [&](int64_t sequence, int64_t head, float* memory) {
    HWY_DYNAMIC_DISPATCH(step)(op, y, sequence, slots == nullptr ? sequence : slots[sequence], head, memory);
  });
  return y;
}

}  // namespace

void register_simd_recurrent_gated_delta_rule() {
  ops::kernels<RecurrentGatedDeltaRule>().add(
      "simd", {.accepts = refuse_float16, .forward = run_forward, .batch_invariant = true});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
