#include "towers/merger.h"

#include "layers/glue.h"
#include "primitives/primitives.h"

namespace temper::towers {

Merger::Merger(const layers::Binding& binding, const MergerConfig& config)
    : joins_first_(config.joins_first),
      joined_(config.mlp.in),
      norm_(binding, config.norm, config.of_norm),
      mlp_(binding, config.mlp) {}

void Merger::declare(layers::TowerWeights& weights, const MergerConfig& config) {
  TowerNorm::declare(weights, config.norm, config.of_norm, config.normed());
  TowerMlp::declare(weights, config.mlp);
}

void Merger::name_ops(const layers::TowerOps& ops, const MergerConfig& config) {
  TowerNorm::name_ops(ops, config.norm, config.of_norm, config.normed());
  TowerMlp::name_ops(ops, config.mlp);
}

Var Merger::operator()(Tape& tape, const layers::Stream& stream) const {
  const auto join = [&](const Var& rows) {
    return primitives::reshape(tape, rows, {rows.value.numel() / joined_, joined_});
  };
  if (!joins_first_) return mlp_(tape, join(norm_(tape, stream).y));
  const layers::Stream joined{join(stream.x), stream.branch.value.defined() ? join(stream.branch) : Var()};
  return mlp_(tape, norm_(tape, joined).y);
}

}  // namespace temper::towers
