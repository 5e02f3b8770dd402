#pragma once
#include <string>

#include "layers/residual_layer.h"
#include "layers/tower.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::towers {

enum class NormKind : uint8_t { kLayer, kRms };  // with weight and bias; with a weight

struct NormConfig {
  NormKind kind = NormKind::kLayer;
  double eps = 1e-6;
};

// A norm of a tower's rows, or of the sum of two of them; the branch may be Var{}.
class TowerNorm {
 public:
  TowerNorm(const layers::Binding& binding, const std::string& name, const NormConfig& config);
  static void declare(layers::TowerWeights& weights, const std::string& name, const NormConfig& config,
                      int64_t width);
  static void name_ops(const layers::TowerOps& ops, const std::string& name, const NormConfig& config,
                       int64_t width);

  struct Result {
    Var sum, y;  // both [rows, width]
  };
  Result operator()(Tape& tape, const layers::Stream& stream) const;

 private:
  float eps_;
  layers::BoundWeight weight_, bias_;
  ops::Bound<ops::LayerNorm> layer_norm_;  // one of the two, as bias_ says
  ops::Bound<ops::RmsNorm> rms_norm_;
};

}  // namespace temper::towers
