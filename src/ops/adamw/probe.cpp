#include "ops/probe.h"
#include "ops/adamw/adamw.h"

namespace temper::ops {

ProbeRun adamw_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Shape shape{kProbeInner, kProbeHidden};
  AdamW::Slot slot;
  slot.value = probe_values(facts, 1, shape, dtype);
  if (dtype != DType::kF32) slot.master = slot.value.to(DType::kF32);
  slot.grad = probe_values(facts, 2, shape, DType::kF32);
  slot.exp_avg = probe_values(facts, 3, shape, DType::kF32, 0.1);
  const Tensor squares = probe_values({}, 4, shape, DType::kF32, 0.05);
  for (float& value : squares.values<float>()) value += 0.06f;
  slot.exp_avg_sq = squares.on(facts.device);
  slot.weight_decay = 0.1f;
  AdamW op;
  op.slots = {slot};
  op.lr = 1e-2f;
  op.step = 7;
  return [op, ops = bind_probe<AdamW>(provider, {dtype}, facts)] {
    adamw(ops, op);
    const AdamW::Slot& updated = op.slots[0];
    return as_float(
        {updated.master.defined() ? updated.master : updated.value, updated.exp_avg, updated.exp_avg_sq});
  };
}

}  // namespace temper::ops
