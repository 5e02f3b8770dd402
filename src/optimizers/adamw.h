#pragma once
#include <string>
#include <utility>
#include <vector>

#include "layers/parameters.h"
#include "ops/adamw/adamw.h"

namespace temper::optimizers {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;  // also norms and biases, which the weight table exempts
};

// AdamW over every parameter of a model: float32 moments and, for parameters of lower precision, float32
// master weights.
class AdamW {
 public:
  // Enables the parameters' gradients. Both references must outlive the optimizer.
  AdamW(layers::ParameterStore& parameters, const ops::BoundOps& ops, const AdamWOptions& options);

  double grad_norm() const;
  void step(double lr, double clip_scale);  // updates in place, then forgets the gradients
  int64_t steps() const { return op_.step - 1; }

  // Everything that a resumed run needs, by name: "master.X" or "parameter.X", "exp_avg.X", "exp_avg_sq.X".
  std::vector<std::pair<std::string, Tensor>> state() const;
  // After the tensors of state() were overwritten: the count of updates, and values rewritten from masters.
  void restored(int64_t steps);

 private:
  layers::ParameterStore& parameters_;
  const ops::BoundOps& ops_;
  ops::AdamW op_;
};

}  // namespace temper::optimizers
