#include "ops/probe.h"
#include "ops/fake_quantize/fake_quantize.h"

namespace temper::ops {

ProbeRun fake_quantize_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const quant::Format format{quant::kE4M3, quant::Scaling::kFloats};
  const Shape shape{kProbeTokens, kProbeHidden};
  // Numbers of bfloat16 in every dtype: what is rounded before may get another code.
  const Tensor x = probe_values(facts, 1, shape, DType::kBF16).to(dtype),
               dy = probe_values(facts, 9, shape, dtype);
  const std::vector<float> limits(kProbeTokens, 0.75f);
  const Tensor amax = Tensor::from<float>(limits, {kProbeTokens, 1}).on(facts.device);
  return [=, ops = bind_probe<FakeQuantize>(provider, {dtype, format}, facts)] {
    Tape tape;
    const Var v = tape.variable(x);
    return probe_backward(tape, fake_quantize(tape, ops, v, amax, format, true), dy, {&v});
  };
}

}  // namespace temper::ops
