#pragma once
#include <string>
#include <vector>

#include "collectives/group.h"
#include "layers/parameters/parameters.h"

namespace temper::optimizers {

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
  collectives::Group* stages = nullptr;  // that hold other parameters: one rank of each stage
};

// The parameters of a store that an optimizer trains, all that the rank holds but buffers, each with the part
// that this rank keeps the state of. They are counted as slots, in the table's order.
class TrainedParameters {
 public:
  // Enables the parameters' gradients. The store must outlive it.
  TrainedParameters(layers::ParameterStore& store, DType gradients, const Sharing& sharing);

  layers::ParameterStore& store() const { return *store_; }
  const Sharing& sharing() const { return sharing_; }
  size_t size() const { return indices_.size(); }
  size_t index(size_t slot) const { return indices_[slot]; }  // in the store
  const Parameter& parameter(size_t slot) const { return (*store_)[indices_[slot]]; }
  const std::string& name(size_t slot) const { return store_->spec(indices_[slot]).name; }
  bool is_in_layer(size_t slot) const { return store_->spec(indices_[slot]).layer.has_value(); }
  const Placement& placement(size_t slot) const { return placements_[slot]; }  // of the state

  bool is_sharded(size_t slot) const { return placements_[slot].is_flat(); }
  bool is_by_expert(size_t slot) const { return placements_[slot].is_by_expert(); }
  collectives::Group* shard_of(size_t slot) const {
    return is_by_expert(slot) ? sharing_.expert_shard : sharing_.shard;
  }
  // Whose gradient was summed when its layer had it.
  bool sums_by_layer(size_t slot) const { return store_->layout().sums_by_layer(indices_[slot]); }

  // Of a tensor of the parameter's shape, or of its gradient, what the rank keeps the state of.
  Tensor own_part(size_t slot, const Tensor& whole) const;
  // Zeros where no pass reached the parameter, not what its memory happens to hold.
  Tensor gradient(size_t slot) const;
  Tensor own_gradient(size_t slot) const;

 private:
  layers::ParameterStore* store_;
  Sharing sharing_;
  std::vector<size_t> indices_;
  std::vector<Placement> placements_;
};

}  // namespace temper::optimizers
