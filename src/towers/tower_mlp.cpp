#include "towers/tower_mlp.h"

namespace temper::towers {
namespace {

int64_t first_width(const MlpConfig& config) { return config.gelu ? config.inner : 2 * config.inner; }

}  // namespace

TowerMlp::TowerMlp(const layers::Binding& binding, const MlpConfig& config)
    : form_(config.gelu), first_(binding, config.first, true), second_(binding, config.second, true) {
  if (form_)
    gelu_ = binding.kernel<ops::Gelu>(config.first);
  else
    swiglu_ = binding.kernel<ops::Swiglu>(config.first);
}

void TowerMlp::declare(layers::TowerWeights& weights, const MlpConfig& config) {
  std::vector<WeightSource> parts{{config.first, config.inner}};
  if (!config.gelu) parts = {{config.gate, config.inner}, {config.up, config.inner}};
  weights.linear(config.first, config.in, parts);
  weights.linear(config.second, config.inner, {{config.second, config.out}});
}

void TowerMlp::name_ops(const layers::TowerOps& ops, const MlpConfig& config) {
  ops.linear(config.first, config.in, first_width(config));
  ops.linear(config.second, config.inner, config.out);
  if (config.gelu)
    ops.use<ops::Gelu>(config.first, {ops.dtype(), config.inner, *config.gelu});
  else
    ops.use<ops::Swiglu>(config.first, {ops.dtype(), config.inner});
}

double TowerMlp::flops_of_row(const MlpConfig& config) {
  return 2 * static_cast<double>(config.in * first_width(config) + config.inner * config.out);
}

Var TowerMlp::operator()(Tape& tape, const Var& x) const {
  const Var inner = first_(tape, x, {});
  return second_(tape, form_ ? ops::gelu(tape, gelu_, inner, *form_) : ops::swiglu(tape, swiglu_, inner), {});
}

}  // namespace temper::towers
