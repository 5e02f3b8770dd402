#pragma once
#include <vector>

#include "layers/parameters/model_ranks.h"
#include "layers/parameters/parameters.h"

namespace temper::layers {

// The matrices of layers, of which sharded ranks have parts (Mesh::shard_level). Of level 3 a layer's are
// gathered before it computes, while the layer before it does, and freed behind it; in backward the same, the
// other way round. Of levels 2 and 3 gradients are scattered as soon as a layer's are complete, and each rank
// keeps the sums of its part. All of that overlaps with the device's computation.
//
// All ranks that share the matrices pass the same layers at the same time.
class ShardedLayers {
 public:
  ShardedLayers(ParameterStore& parameters, const ModelRanks& ranks, size_t layers);

  // Around a layer: what its modules read, and what they give. `again`: its backward pass follows at once, as
  // it is computed again for that.
  Var begin(Tape& tape, size_t layer, const Var& x, bool again);
  Var end(Tape& tape, size_t layer, const Var& y);
  // Waits for what is under way: before anything reads the sums.
  void settle();

 private:
  using Parameters = std::vector<size_t>;  // of the store
  // Of one group, as its collectives start together.
  struct Shares {
    collectives::Group* group = nullptr;
    Parameters parameters;
  };
  void fetch(int64_t layer);  // asks for it where it is not there; none beyond the ends
  void release(int64_t layer);
  void scatter(size_t layer);
  template <class F>
  void overlap(size_t layer, const F& f);  // f(group, parameter)

  ParameterStore& parameters_;
  const bool gathers_;
  std::vector<std::vector<Shares>> layers_;
  std::vector<bool> there_;     // or on its way
  std::vector<Tensor> in_use_;  // by what is under way
  struct DeferredSum {
    size_t parameter;
    Tensor sum;
  };
  std::vector<DeferredSum> deferred_;  // sums that are added to those that are there
};

// The value of a parameter as passes read it, [own shape of the unsharded placement]. Of one that comes and
// goes it is gathered from the ranks that share it, all of which call this at the same time.
Tensor gathered_value(const ParameterStore& parameters, const ModelRanks& ranks, std::string_view name);

}  // namespace temper::layers
