#pragma once
#include <string>

#include "layers/adapted_rows.h"
#include "layers/binding.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::layers {

// An RMS norm of the residual stream, which is the sum of both inputs; the branch may be Var{}.
class Norm {
 public:
  Norm(const Binding& binding, const std::string& name, double eps);
  static void declare(WeightScope& weights, const std::string& name, const std::string& source,
                      int64_t hidden);

  ops::NormedSum operator()(Tape& tape, const Var& x, const Var& branch, const AdaptedRows& rows) const;

 private:
  BoundWeight weight_;
  ops::Bound<ops::RmsNorm> kernel_;
  float eps_;
};

}  // namespace temper::layers
