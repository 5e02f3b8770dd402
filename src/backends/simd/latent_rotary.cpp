#include "ops/latent_heads/latent_rotary.h"
#include "backends/floats.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/latent_rotary.cpp"
#include <hwy/foreach_target.h>

#include "backends/simd/rotation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// What comes out are halves, whatever the pairs of x are.
template <class Pairs, class T>
void rotate_part(const T* x, const Angles& at, T* y) {
  sweep(at.half, [&](int64_t i, auto lanes) HWY_ATTR {
    const Pair pair = Pairs::load(Pairs::at(x, i), at.half, lanes);
    HalfSplit::store(rotate(pair, load(at.cos + i, lanes), load(at.sin + i, lanes)), y + i, at.half, lanes);
  });
}

template <class Pairs, class T>
void rotate_back(const T* dy, const Angles& at, T* dx) {
  sweep(at.half, [&](int64_t i, auto lanes) HWY_ATTR {
    const Pair pair = rotate(HalfSplit::load(dy + i, at.half, lanes), load(at.cos + i, lanes),
                             hn::Neg(load(at.sin + i, lanes)));
    Pairs::store(pair, Pairs::at(dx, i), at.half, lanes);
  });
}

// Of q and k_rope [tokens, …] to those of `to`, forward, or of gradients back.
template <class Pairs>
void rotate_pairs(const ops::LatentRotary& op, bool back, const ops::LatentRotary::Output& from,
                  const ops::LatentRotary::Output& to, int64_t begin, int64_t end) {
  const int64_t rope = 2 * op.cos.dim(1), dim = to.q.numel() / (to.q.dim(0) * op.heads), nope = dim - rope;
  visit_wide(to.q.dtype(), [&]<class T>() HWY_ATTR {
    for (int64_t token = begin; token < end; ++token) {
      const Angles at(op, token);
      const auto part = [&](const T* x, T* y)
                            HWY_ATTR { back ? rotate_back<Pairs>(x, at, y) : rotate_part<Pairs>(x, at, y); };
      const T* x = from.q.data<T>() + token * from.q.stride(0);
      T* y = to.q.data<T>() + token * to.q.stride(0);
      for (int64_t head = 0; head < op.heads; ++head, x += dim, y += dim) {
        std::copy_n(x, nope, y);
        part(x + nope, y + nope);
      }
      part(from.k_rope.data<T>() + token * from.k_rope.stride(0),
           to.k_rope.data<T>() + token * to.k_rope.stride(0));
    }
  });
}

void rotate_tokens(const ops::LatentRotary& op, bool back, const ops::LatentRotary::Output& from,
                   const ops::LatentRotary::Output& to, int64_t begin, int64_t end) {
  op.interleaved ? rotate_pairs<Interleaved>(op, back, from, to, begin, end)
                 : rotate_pairs<HalfSplit>(op, back, from, to, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::LatentRotary;
HWY_EXPORT(rotate_tokens);

void run(const LatentRotary& op, bool back, const LatentRotary::Output& from,
         const LatentRotary::Output& to) {
  const int64_t tokens = to.q.dim(0);
  if (tokens == 0) return;
  parallel_ranges(tokens, rows_per_task(to.q.numel() / tokens), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotate_tokens)(op, back, from, to, begin, end);
  });
}

LatentRotary::Output forward(const LatentRotary& op) {
  const int64_t tokens = op.q.dim(0);
  const LatentRotary::Output out{Tensor::empty({tokens, op.heads, op.head_dim()}, op.q.dtype()),
                                 Tensor::empty({tokens, op.rope_dim()}, op.q.dtype())};
  run(op, false, {op.q, op.k_rope}, out);
  return out;
}

LatentRotary::Grads backward(const LatentRotary& op, const Tensor& dq, const Tensor& dk_rope) {
  const LatentRotary::Grads grads{Tensor::empty({dq.dim(0), dq.dim(1) * dq.dim(2)}, dq.dtype()),
                                  Tensor::empty(dk_rope.shape(), dq.dtype())};
  run(op, true, {dq, dk_rope}, {grads.q, grads.k_rope});
  return grads;
}

}  // namespace

void register_simd_latent_rotary() {
  ops::kernels<LatentRotary>().add(
      "simd", {.accepts = refuse_float16, .forward = forward, .backward = backward, .batch_invariant = true});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
