#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/group.h"
#include "layers/parameters.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"

namespace temper::optimizers {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;  // also norms and biases, which the weight table exempts
  layers::StateFormat format = {};
  uint64_t seed = 0;  // of stochastic rounding
};

// The ranks that keep one state together: each parameter's elements are cut into as many parts in a row, and
// a rank has the master weights and moments of one of them (Rajbhandari et al., "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models", 2020, stage 1). Parameters whose elements cannot be cut into
// parts of eight are kept whole on all. None: every rank keeps all.
struct Sharing {
  collectives::Group* shard = nullptr;      // that keep one state
  collectives::Group* replicate = nullptr;  // that keep the same part of it; none: only this rank
  // That divide each replica of the model: what several of them hold has the sum of their gradients.
  collectives::Group* tensor = nullptr;
  // Of parameters of experts, which ranks divide, those that share their states and all that hold the same.
  collectives::Group* expert_shard = nullptr;
  collectives::Group* experts = nullptr;
  collectives::Group* expert = nullptr;  // that divide them
};

// AdamW over every parameter of a model that is no buffer, on the parameters' device.
class AdamW {
 public:
  // Enables the parameters' gradients. Both references must outlive the optimizer.
  AdamW(layers::ParameterStore& parameters, const ops::BoundOps& ops, const AdamWOptions& options,
        const Sharing& sharing = {});

  // Adds up the gradients of ranks that hold the same parameters, in place, one by one in the table's order:
  // before anything reads them. Of a sharded state each rank gets the sums of its part.
  void sum_gradients(collectives::Group& ranks);
  // The same in parts, beside what the device does meanwhile: between begin and end, sum_ready() asks for the
  // sums of gradients that no closure of a tape will change any more. The order, from the last parameter to
  // the first, as backward reaches them, is the same on all ranks, whatever is ready when.
  void begin_sums(collectives::Group& ranks);
  void sum_ready();
  void end_sums();
  // [1] float32, on the parameters' device; of what the store holds. Of a sharded state all ranks call it.
  Tensor grad_norm() const;
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
  Tensor gradient(size_t index) const;  // of parameters_[index]
  bool is_ready(size_t slot) const;
  void sum_next();
  bool is_sharded(size_t slot) const { return placements_[slot].is_flat(); }
  bool is_by_expert(size_t slot) const { return placements_[slot].is_by_expert(); }
  collectives::Group* shard_of(size_t slot) const {
    return is_by_expert(slot) ? sharing_.expert_shard : sharing_.shard;
  }
  // The groups that gradients are summed in.
  std::vector<collectives::Group*> groups() const;
  std::vector<Placement::Shared> find_partial(size_t slot) const;
  void sum_late();
  void sum_slot(size_t slot);
  // Of the rank's part of a gradient what no tensor rank before it holds.
  void add_counted(size_t slot, std::vector<Tensor>& gradients) const;
  // What the rank keeps of a tensor of a slot's parameter, and of its gradient.
  Tensor own_part(size_t slot, const Tensor& whole) const;
  Tensor own_gradient(size_t slot) const;
  // Whose gradient was summed when its layer had it.
  bool sums_by_layer(size_t slot) const { return parameters_.layout().sums_by_layer(trained_[slot]); }
  // Whose sums wait until backward has ended.
  bool sums_late(size_t slot) const { return sums_by_layer(slot) || !partial_[slot].empty(); }
  ops::AdamW::Slot make_slot(size_t slot, const AdamWOptions& options) const;
  void gather_values(size_t first, size_t until) const;  // of all parts, after an update
  void update_in_parts();

  layers::ParameterStore& parameters_;
  Sharing sharing_;
  collectives::Group* summing_ = nullptr;  // while gradients are summed
  size_t left_ = 0;                        // slots whose gradients are not
  std::vector<bool> may_grow_unseen_;      // by slot
  // By slot: parts that several tensor ranks hold, where each knows a part of the gradient.
  std::vector<std::vector<Placement::Shared>> partial_;
  // Neighbours on the tensor axis that hold the same, by their number.
  std::map<int, std::unique_ptr<collectives::Group>> neighbours_;
  std::vector<size_t> trained_;        // by slot: its place in parameters_
  std::vector<Placement> placements_;  // by slot: of its state
  ops::Bound<ops::AdamW> update_;
  ops::Bound<ops::GlobalNorm> norm_;
  ops::AdamW op_;
};

}  // namespace temper::optimizers
