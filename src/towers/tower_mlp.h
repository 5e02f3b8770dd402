#pragma once
#include <optional>
#include <string>

#include "layers/linear.h"
#include "layers/tower.h"
#include "ops/gelu/gelu.h"
#include "ops/swiglu/swiglu.h"

namespace temper::towers {

// Two linears with biases and what is between them: GELU, or swiglu, of a first one that gives gate and up.
struct MlpConfig {
  std::string first, second;                                // modules, here and in files
  int64_t in = 0, inner = 0, out = 0;                       // inner: what the second reads
  std::optional<ops::GeluForm> gelu = ops::GeluForm::kErf;  // nothing: swiglu
  std::string gate = {}, up = {};                           // with swiglu: what files have of the first
};

class TowerMlp {
 public:
  TowerMlp(const layers::Binding& binding, const MlpConfig& config);
  static void declare(layers::TowerWeights& weights, const MlpConfig& config);
  static void name_ops(const layers::TowerOps& ops, const MlpConfig& config);
  static double flops_of_row(const MlpConfig& config);

  Var operator()(Tape& tape, const Var& x) const;  // [rows, in] to [rows, out]

 private:
  std::optional<ops::GeluForm> form_;
  layers::Linear first_, second_;
  ops::Bound<ops::Gelu> gelu_;  // one of the two
  ops::Bound<ops::Swiglu> swiglu_;
};

}  // namespace temper::towers
