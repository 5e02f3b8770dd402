#include "ops/latent_heads/latent_heads.h"
#include "backends/floats.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/latent_heads.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// y[i] = Σ_h x[h * stride + i], head by head.
template <class T>
void sum_heads(const T* x, int64_t heads, int64_t stride, int64_t size, T* y) {
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    Lanes sum = load(x + i, lanes);
    for (int64_t head = 1; head < heads; ++head) sum = hn::Add(sum, load(x + head * stride + i, lanes));
    store(sum, y + i, lanes);
  });
}

void add_shared(const Tensor& dk, const Tensor& dk_rope, int64_t begin, int64_t end) {
  const int64_t dim = dk.dim(2), rope = dk_rope.dim(1);
  visit_wide(dk.dtype(), [&]<class T>() {
    for (int64_t token = begin; token < end; ++token)
      sum_heads(dk.data<T>() + token * dk.stride(0) + dim - rope, dk.dim(1), dim, rope,
                dk_rope.data<T>() + token * rope);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::LatentHeads;
HWY_EXPORT(add_shared);

// Bytes move as they are.
struct Mover {
  int64_t size;
  std::byte* copy(const void* from, int64_t count, std::byte* to) const {
    std::memcpy(to, from, static_cast<size_t>(count * size));
    return to + count * size;
  }
};

std::byte* row_of(const Tensor& tensor, int64_t row) {
  return static_cast<std::byte*>(tensor.raw()) + row * tensor.stride(0) * size_of(tensor.dtype());
}

void spread(const LatentHeads& op, const LatentHeads::Output& out, int64_t begin, int64_t end) {
  const int64_t nope = op.nope_dim, rope = op.rope_dim(), value = op.value_dim();
  const Mover mover{size_of(op.kv.dtype())};
  for (int64_t token = begin; token < end; ++token) {
    const std::byte *kv = row_of(op.kv, token), *shared = row_of(op.k_rope, token);
    std::byte *k = row_of(out.k, token), *v = row_of(out.v, token);
    for (int64_t head = 0; head < op.heads; ++head, kv += (nope + value) * mover.size) {
      k = mover.copy(shared, rope, mover.copy(kv, nope, k));
      v = mover.copy(kv + nope * mover.size, value, v);
    }
  }
}

void gather(const LatentHeads& op, const Tensor& dk, const Tensor& dv, const Tensor& dkv, int64_t begin,
            int64_t end) {
  const int64_t nope = op.nope_dim, dim = dk.dim(2), value = dv.dim(2);
  const Mover mover{size_of(dk.dtype())};
  for (int64_t token = begin; token < end; ++token) {
    const std::byte *k = row_of(dk, token), *v = row_of(dv, token);
    std::byte* to = row_of(dkv, token);
    for (int64_t head = 0; head < op.heads; ++head, k += dim * mover.size, v += value * mover.size)
      to = mover.copy(v, value, mover.copy(k, nope, to));
  }
}

LatentHeads::Output forward(const LatentHeads& op) {
  const int64_t tokens = op.kv.dim(0), dim = op.nope_dim + op.rope_dim();
  const LatentHeads::Output out{Tensor::empty({tokens, op.heads, dim}, op.kv.dtype()),
                                Tensor::empty({tokens, op.heads, op.value_dim()}, op.kv.dtype())};
  parallel_ranges(tokens, rows_per_task(op.kv.dim(1)),
                  [&](int64_t begin, int64_t end) { spread(op, out, begin, end); });
  return out;
}

LatentHeads::Grads backward(const LatentHeads& op, const Tensor& dk, const Tensor& dv) {
  const int64_t tokens = dk.dim(0), width = op.heads * (op.nope_dim + dv.dim(2));
  const LatentHeads::Grads grads{Tensor::empty({tokens, width}, dk.dtype()),
                                 Tensor::empty({tokens, dk.dim(2) - op.nope_dim}, dk.dtype())};
  parallel_ranges(tokens, rows_per_task(width), [&](int64_t begin, int64_t end) {
    gather(op, dk, dv, grads.kv, begin, end);
    HWY_DYNAMIC_DISPATCH(add_shared)(dk, grads.k_rope, begin, end);
  });
  return grads;
}

}  // namespace

void register_simd_latent_heads() {
  ops::kernels<LatentHeads>().add(
      "simd", {.accepts = refuse_float16, .forward = forward, .backward = backward, .batch_invariant = true});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
