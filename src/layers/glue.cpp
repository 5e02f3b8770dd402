#include "layers/glue.h"

#include "base/threads.h"

namespace temper::layers {
namespace {

Tensor sum(const Tensor& a, const Tensor& b) {
  if (a.device().type != DeviceType::kCpu) {
    const Tensor out = a.clone();
    add_in_place(out, b);
    return out;
  }
  const Tensor out = Tensor::empty(a.shape(), a.dtype());
  visit_float(a.dtype(), [&]<class T>() {
    const T *pa = a.data<T>(), *pb = b.data<T>();
    T* po = out.data<T>();
    parallel_ranges(out.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) po[i] = T(static_cast<float>(pa[i]) + static_cast<float>(pb[i]));
    });
  });
  return out;
}

}  // namespace

Var residual_add(Tape& tape, const Var& x, const Var& branch) {
  invariant(x.shape() == branch.shape() && x.dtype() == branch.dtype(), "a residual adds equal shapes");
  return tape.record(sum(x.value.contiguous(), branch.value.contiguous()), {&x, &branch},
                     [x = x.slot, branch = branch.slot](const Tensor& grad) {
                       if (x) x->add(grad);
                       if (branch) branch->add(grad);
                     });
}

SplitHeads split_heads(Tape& tape, const Var& qkv, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const int64_t tokens = qkv.shape()[0], all = heads + 2 * kv_heads;
  const Tensor shaped = qkv.value.reshape({tokens, all, head_dim});
  std::vector<Tensor> parts{shaped.narrow(1, 0, heads), shaped.narrow(1, heads, kv_heads),
                            shaped.narrow(1, heads + kv_heads, kv_heads)};
  auto vars = tape.record(
      std::move(parts), {&qkv},
      [slot = qkv.slot, dtype = qkv.dtype(), device = qkv.value.device(), tokens, all,
       head_dim](const std::vector<Tensor>& grads) {
        const Tensor joined = Tensor::empty({tokens, all, head_dim}, dtype, MemoryTag::kActivations, device);
        int64_t start = 0;
        for (const Tensor& grad : grads) {
          invariant(grad.defined(), "attention gives a gradient to each of q, k and v");
          joined.narrow(1, start, grad.dim(1)).copy_from(grad);
          start += grad.dim(1);
        }
        slot->add(joined.reshape({tokens, all * head_dim}));
      });
  return {vars[0], vars[1], vars[2]};
}

Var merge_heads(Tape& tape, const Var& x) {
  const Shape shape = x.shape();
  return tape.record(
      x.value.contiguous().reshape({shape[0], shape[1] * shape[2]}), {&x},
      [slot = x.slot, shape](const Tensor& grad) { slot->add(grad.contiguous().reshape(shape)); });
}

}  // namespace temper::layers
