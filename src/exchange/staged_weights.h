#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoints/element_runs.h"
#include "exchange/element_order.h"
#include "layers/parameters.h"

namespace temper::exchange {

// New values for all parameters of a store, which collect beside the old ones until they are complete, in the
// dtypes of the store and on the CPU. That is a second copy of the weights for as long as a sync lasts; in
// exchange whatever goes wrong before publish() leaves the store as it was.
class StagedWeights {
 public:
  // An Error where the store holds parts of parameters, some in 8 bits, or lies on another device. The store
  // must outlive it.
  StagedWeights(const layers::ParameterStore& parameters, Names names);

  // Some elements of a tensor, in their order [elements]; any floating-point dtype, converted as when a
  // folder is loaded. An Error for another shape, for elements that came before, and for single tensors
  // beside stacked ones. What the table ignores or keeps for files is passed over; a name that it does not
  // know is counted.
  void take(const std::string& name, const checkpoints::HeldElements& elements, const Tensor& values);
  // An Error that lists what has not come, or not all of it.
  void check_whole() const;
  // Copies everything into the store, whose version changes. Nothing in it can fail. Not while a pass reads
  // the store.
  void publish(layers::ParameterStore& parameters) const;

  int64_t bytes_taken() const { return bytes_taken_; }
  const std::set<std::string>& unknown() const { return unknown_; }  // names that the table does not know

 private:
  struct Coverage {
    std::map<int64_t, int64_t> ranges;  // of elements of the tensor that came: begin, end
    int64_t count = 0;
    void add(const std::string& name, int64_t begin, int64_t count);
  };
  void scatter(const Target& target, const checkpoints::HeldElements& elements, const Tensor& values);

  const layers::ParameterStore& parameters_;
  std::unordered_map<std::string_view, Target> targets_;
  std::unordered_map<std::string_view, Coverage> came_;
  std::vector<int64_t> elements_;  // that came, of each parameter
  std::vector<int8_t> forms_;      // of each parameter: 0 nothing came, 1 single tensors, 2 stacked
  std::vector<Tensor> staged_;     // [elements of the parameter] each
  std::set<std::string> unknown_;
  int64_t bytes_taken_ = 0;
};

}  // namespace temper::exchange
