#include "ops/probe.h"
#include "ops/sample/sample.h"

namespace temper::ops {

// Greedy: the one choice that does not depend on roundings.
ProbeRun sample_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kSequences = 4;
  const Device device = facts.device;
  Sample op;
  op.logits = probe_values(facts, 1, {kSequences, kProbeVocab}, dtype, 8);
  // The largest must be so in every dtype.
  const Tensor peak = Tensor::from(std::vector<float>{20}).to(dtype).reshape({1, 1});
  for (int64_t s = 0; s < kSequences; ++s)
    op.logits.narrow(0, s, 1).narrow(1, 31 * s + 5, 1).copy_from(peak.on(device));
  const std::vector<SamplingOptions> options(kSequences);
  op.options = Tensor::zeros({kSequences, sizeof(SamplingOptions)}, DType::kU8, MemoryTag::kData, device);
  op.options.copy_from_host(options.data(), op.options.bytes());
  op.seen = Tensor::zeros(op.logits.shape(), DType::kU8, MemoryTag::kData, device);
  op.positions = Tensor::zeros({kSequences}, DType::kI32, MemoryTag::kData, device);
  op.ids = Tensor::zeros({kSequences}, DType::kI32, MemoryTag::kData, device);
  op.chosen = op.ids.clone();
  op.kept = Tensor::zeros({kSequences}, DType::kF32, MemoryTag::kData, device);
  return [op, ops = bind_probe<Sample>(provider, {dtype, kProbeVocab}, facts)] {
    choose_tokens(ops, op);
    std::vector<float> ids;
    for (const int32_t id : op.ids.on({}).values<int32_t>()) ids.push_back(static_cast<float>(id));
    return std::vector<Tensor>{Tensor::from(ids)};
  };
}

}  // namespace temper::ops
