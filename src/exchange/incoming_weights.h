#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoints/files/element_runs.h"
#include "exchange/coverage.h"
#include "exchange/element_order.h"
#include "exchange/rounding.h"
#include "layers/parameters/parameters.h"

namespace temper::exchange {

// Where values are kept until all have come.
enum class Loading {
  kStaged,  // as a second copy of the weights: the old ones stay whatever goes wrong
  kDirect,  // in their place: no copy, but no pass may use the weights before all have come
};

// By class of hardware (device/facts.h): Ascend's engines load in place, and their contract has no memory for
// a second copy of the weights; all others collect them first.
Loading loading_for(std::string_view hardware);

// New values for all parameters of a store, which come in pieces, in the dtypes of the store and on its
// device; and for the scales of the model's quantizers of activations, which are staged whatever
// `loading` is: they are small.
class IncomingWeights {
 public:
  // An Error where the store holds parts of parameters, or some in 8 or 4 bits. The store and `quantizers`
  // (null: none) must outlive it.
  IncomingWeights(layers::ParameterStore& parameters, Names names, Loading loading,
                  quantizers::Quantizers* quantizers = nullptr);

  // Some elements of a tensor, in their order [elements]; any floating-point dtype, converted as when a
  // folder is loaded; on the CPU or on the store's device. An Error for another shape, for elements that came
  // before, and for single tensors in addition to stacked ones. What the table ignores or keeps for files is
  // passed over; a name that it does not know is counted.
  void take(const std::string& name, const checkpoints::HeldElements& elements, const Tensor& values);
  // An Error that lists what has not come, or not all of it.
  void check_whole() const;
  // The store has the new values then, and another version, and quantizers round by theirs. Nothing in it can
  // fail. Not while a pass reads the store.
  void publish() const;

  Loading loading() const { return loading_; }
  // Whether the store's values are part old, part new.
  bool has_overwritten() const { return loading_ == Loading::kDirect && bytes_taken_ > 0; }
  int64_t bytes_taken() const { return bytes_taken_; }
  const std::set<std::string>& unknown() const { return unknown_; }  // names that the table does not know

 private:
  // Of what comes: parameters, then scales.
  Tensor destination(size_t index);  // [elements]
  const std::string& name_of(size_t index) const;
  int64_t elements_of(size_t index) const;
  void scatter(const Target& target, const std::vector<checkpoints::Columns>& columns, const Tensor& values);

  layers::ParameterStore& parameters_;
  quantizers::Quantizers* const quantizers_;
  const std::vector<quantizers::NamedScales> scales_;
  const Loading loading_;
  std::unordered_map<std::string_view, Target> targets_;
  std::unordered_map<std::string_view, Coverage> came_;
  std::vector<int64_t> elements_;  // that came, of each
  std::vector<int8_t> forms_;      // of each: 0 nothing came, 1 single tensors, 2 stacked
  std::vector<Tensor> staged_;     // [elements] each; with kDirect only of scales
  std::set<std::string> unknown_;
  int64_t bytes_taken_ = 0;
};

}  // namespace temper::exchange
