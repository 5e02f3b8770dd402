#pragma once
#include <string>

#include "layers/adapted_rows.h"
#include "layers/binding.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::layers {

// An RMS norm of the residual stream, which is the sum of both inputs; the branch may be Var{}, and is where
// ranks have parts.
class Norm {
 public:
  // `offset` is added to the weight (ops::RmsNorm): weights of a new model are 1 with it. `ranks`: each has
  // an equal part of what is normed; null: all is here.
  Norm(const Binding& binding, const std::string& name, double eps, double offset = 0,
       collectives::Group* ranks = nullptr);
  static void declare(WeightScope& weights, const std::string& name, const std::string& source,
                      int64_t hidden, double offset = 0);

  ops::NormedSum operator()(Tape& tape, const Var& x, const Var& branch, const AdaptedRows& rows) const;

 private:
  BoundWeight weight_;
  ops::Bound<ops::RmsNorm> kernel_;
  float eps_, offset_;
  collectives::Group* ranks_;
};

}  // namespace temper::layers
