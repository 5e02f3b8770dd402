#include "ops/probe.h"
#include "ops/global_norm/global_norm.h"

namespace temper::ops {

ProbeRun global_norm_probe(const std::string& provider, DType, const HardwareFacts& facts) {
  const GlobalNorm op{{probe_values(facts, 1, {kProbeInner, kProbeHidden}, DType::kF32),
                       probe_values(facts, 2, {kProbeHidden}, DType::kF32)},
                      facts.device};
  return [op, ops = bind_probe<GlobalNorm>(provider, {}, facts)] { return as_float({global_norm(ops, op)}); };
}

}  // namespace temper::ops
