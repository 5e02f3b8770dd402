#include "ops/adamw/adamw.h"

#include <cmath>

#include "ops/checks.h"
#include "ops/op_info.h"

namespace temper::ops {
namespace {

// Plain loops: the update is element-wise, so it is its own composition.
void compose(const AdamW& op) {
  const double correction1 = 1 - std::pow(double{op.beta1}, static_cast<double>(op.step));
  const double correction2 = 1 - std::pow(double{op.beta2}, static_cast<double>(op.step));
  for (const AdamW::Slot& slot : op.slots) {
    const Tensor weights = slot.master.defined() ? slot.master : slot.value;
    float *w = weights.data<float>(), *m = slot.exp_avg.data<float>(), *v = slot.exp_avg_sq.data<float>();
    const float* grad = slot.grad.data<float>();
    for (int64_t i = 0; i < weights.numel(); ++i) {
      const float g = grad[i] * op.clip_scale;
      m[i] = op.beta1 * m[i] + (1 - op.beta1) * g;
      v[i] = op.beta2 * v[i] + (1 - op.beta2) * g * g;
      const float denominator = std::sqrt(v[i] / static_cast<float>(correction2)) + op.eps;
      w[i] -=
          op.lr * slot.weight_decay * w[i] + op.lr * (m[i] / static_cast<float>(correction1)) / denominator;
    }
    if (slot.master.defined()) slot.value.copy_from(slot.master);
  }
}

}  // namespace

void adamw(const BoundOps& ops, const AdamW& op) {
  constexpr auto name = AdamW::kName;
  for (const AdamW::Slot& slot : op.slots) {
    check_float(name, "value", slot.value);
    const Shape& shape = slot.value.shape();
    if (slot.master.defined())
      check_dtype(name, "master", slot.master, DType::kF32);
    else
      check_dtype(name, "value (without master weights)", slot.value, DType::kF32);
    if (slot.master.defined()) check_shape(name, "master", slot.master, shape);
    for (const auto& [label, tensor] :
         {std::pair{"grad", &slot.grad}, {"exp_avg", &slot.exp_avg}, {"exp_avg_sq", &slot.exp_avg_sq}}) {
      check_shape(name, label, *tensor, shape);
      check_dtype(name, label, *tensor, DType::kF32);
      check_contiguous(name, label, *tensor);
    }
    check_contiguous(name, "value", slot.value);
    if (slot.master.defined()) check_contiguous(name, "master", slot.master);
  }
  if (op.step < 1) fail("[adamw] step is {}, needs to count from 1", op.step);
  const auto& kernel = ops.get<AdamW>();
  if (kernel.compose != nullptr)
    kernel.compose(op);
  else
    kernel.forward(op);
}

Probe adamw_probe;

void register_adamw() { register_op<AdamW>(compose, adamw_probe); }

}  // namespace temper::ops
