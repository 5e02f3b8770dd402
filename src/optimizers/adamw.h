#pragma once
#include <string>
#include <vector>

#include "ops/adamw/adamw.h"
#include "optimizers/gradient_norm.h"
#include "optimizers/gradient_sums.h"

namespace temper::optimizers {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;  // also norms and biases, which the weight table exempts
  layers::StateFormat format = {};
  uint64_t seed = 0;  // of stochastic rounding
};

// AdamW over every parameter of a model that is no buffer, on the parameters' device.
class AdamW {
 public:
  // Enables the parameters' gradients. Both references must outlive the optimizer.
  AdamW(layers::ParameterStore& parameters, const ops::BoundOps& ops, const AdamWOptions& options,
        const Sharing& sharing = {});
  AdamW(const AdamW&) = delete;  // its sums know where it is
  AdamW& operator=(const AdamW&) = delete;

  // Adds up the gradients of ranks that hold the same parameters, in place, one by one in the table's order:
  // before anything reads them. Of a sharded state each rank gets the sums of its part.
  void sum_gradients(collectives::Group& ranks);
  // The same in parts, while the device continues with backward (GradientSums).
  void begin_sums(collectives::Group& ranks) { sums_.begin(ranks); }
  void sum_ready() { sums_.sum_ready(); }
  void end_sums() { sums_.end(); }
  // [1] float32, on the parameters' device; of what the store holds. Of a sharded state all ranks call it.
  Tensor grad_norm() const { return gradient_norm(trained_, norm_); }
  // Updates in place, then forgets the gradients; their memory stays until it is released. They are scaled
  // down to a norm of max_grad_norm (0: never); when grad_norm is not finite nothing changes. An undefined
  // grad_norm does not clip.
  void step(double lr, const Tensor& grad_norm = {}, double max_grad_norm = 0);
  // The same in parts: update() is what a device does, so that captured work may repeat it.
  void set_lr(double lr);
  void update(const Tensor& grad_norm, double max_grad_norm);
  void advance();
  int64_t steps() const { return op_.step - 1; }

  // Everything that a resumed run needs, by name: "master.X" or "parameter.X", "exp_avg.X", "exp_avg_sq.X";
  // of buffers "parameter.X".
  // Of what the store holds.
  std::vector<PlacedTensor> state() const;
  // The gradients of the last update before clipping, as grad_norm() read them: whole, or the rank's part.
  std::vector<PlacedTensor> summed_gradients() const;
  // After the tensors of state() were overwritten: the count of updates, and values rewritten from masters.
  void restored(int64_t steps);

 private:
  ops::AdamW::Slot make_slot(size_t slot, const AdamWOptions& options) const;
  void gather_values(size_t first, size_t until) const;  // of all parts, after an update
  void update_in_parts();

  TrainedParameters trained_;
  GradientSums sums_;
  ops::Bound<ops::AdamW> update_;
  ops::Bound<ops::GlobalNorm> norm_;
  ops::AdamW op_;
};

}  // namespace temper::optimizers
