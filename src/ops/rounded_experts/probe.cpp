#include "ops/probe.h"
#include "ops/moe_experts/probe_ids.h"
#include "ops/rounded_experts/rounded_experts.h"

namespace temper::ops {

ProbeRun rounded_experts_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr ProbeExperts p;
  const quant::Format format{quant::kE4M3, quant::Scaling::kFloats};
  const auto calibrated = [&](float amax) {
    const std::vector<float> all(static_cast<size_t>(p.experts), amax);
    return RowRounding{true, format, RowRounding::Amax::kExperts,
                       Tensor::from<float>(all, {p.experts}).on(facts.device)};
  };
  // Numbers of bfloat16 in every dtype: what is rounded before may get another code. What `down` reads is
  // not rounded, since kernels sum gate and up in other orders.
  const Tensor x = probe_values(facts, 1, {kProbeTokens, p.hidden}, DType::kBF16).to(dtype);
  return [=, i = p.inputs(facts, dtype), in = calibrated(0.75f),
          ops = bind_probe<RoundedExperts>(
              provider, {dtype, p.hidden, p.width, p.experts, p.top_k, format, format}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(i.weights), vg = tape.variable(i.gate_up),
              vd = tape.variable(i.down);
    return probe_backward(tape, rounded_experts(tape, ops, vx, i.ids, vw, {vg, vd, in, {}}), i.dy,
                          {&vx, &vw, &vg, &vd});
  };
}

}  // namespace temper::ops
