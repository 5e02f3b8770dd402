#include "towers/tower_norm.h"

namespace temper::towers {

TowerNorm::TowerNorm(const layers::Binding& binding, const std::string& name, const NormConfig& config)
    : eps_(static_cast<float>(config.eps)), weight_(binding.weight(name + ".weight")) {
  if (config.kind == NormKind::kRms) {
    rms_norm_ = binding.kernel<ops::RmsNorm>(name);
    return;
  }
  bias_ = binding.weight(name + ".bias");
  layer_norm_ = binding.kernel<ops::LayerNorm>(name);
}

void TowerNorm::declare(layers::TowerWeights& weights, const std::string& name, const NormConfig& config,
                        int64_t width) {
  weights.vector(name + ".weight", width);
  if (config.kind == NormKind::kLayer) weights.vector(name + ".bias", width);
}

void TowerNorm::name_ops(const layers::TowerOps& ops, const std::string& name, const NormConfig& config,
                         int64_t width) {
  if (config.kind == NormKind::kLayer)
    ops.use<ops::LayerNorm>(name, {ops.dtype(), width});
  else
    ops.use<ops::RmsNorm>(name, {ops.dtype(), width});
}

TowerNorm::Result TowerNorm::operator()(Tape& tape, const layers::Stream& stream) const {
  const Var weight = weight_.leaf(tape);
  if (!bias_.exists()) {
    const ops::NormedSum found = ops::add_rms_norm(tape, rms_norm_, stream.x, stream.branch, weight, eps_);
    return {found.sum, found.y};
  }
  const ops::LayerNormedSum found =
      ops::add_layer_norm(tape, layer_norm_, stream.x, stream.branch, weight, bias_.leaf(tape), eps_);
  return {found.sum, found.y};
}

}  // namespace temper::towers
