#include "ops/probe.h"
#include "ops/adamw/adamw.h"

namespace temper::ops {

ProbeRun adamw_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Shape shape{kProbeInner, kProbeHidden};
  AdamW::Slot slot;
  slot.value = probe_values(1, shape, dtype);
  if (dtype != DType::kF32) slot.master = slot.value.to(DType::kF32);
  slot.grad = probe_values(2, shape, DType::kF32);
  slot.exp_avg = probe_values(3, shape, DType::kF32, 0.1);
  slot.exp_avg_sq = Tensor::zeros(shape, DType::kF32);
  slot.weight_decay = 0.1f;
  AdamW op;
  op.slots = {slot};
  op.lr = 1e-3f;
  return [op, ops = bind_probe<AdamW>(provider, {dtype}, facts)] {
    adamw(ops, op);
    return as_float({op.slots[0].value, op.slots[0].exp_avg, op.slots[0].exp_avg_sq});
  };
}

}  // namespace temper::ops
