#pragma once
#include <vector>

#include "autograd/tape.h"
#include "weights/weight_table.h"

namespace temper::layers {

// The parameters of one model, in the order of its weight table.
class ParameterStore {
 public:
  // Memory for every value (tag weights), uninitialised.
  ParameterStore(WeightTable table, DType dtype);

  const WeightTable& table() const { return table_; }
  DType dtype() const { return dtype_; }
  size_t size() const { return parameters_.size(); }
  Parameter& operator[](size_t index) { return parameters_[index]; }
  const Parameter& operator[](size_t index) const { return parameters_[index]; }
  const WeightSpec& spec(size_t index) const { return table_.specs()[index]; }
  const Parameter& at(std::string_view name) const;  // throws when the table has no such name
  int64_t num_elements() const;

  // Matrices normal(0, deviation), keyed by (seed, parameter, element); norms one, biases zero.
  void initialize(uint64_t seed, double deviation);
  void enable_gradients();  // float32 buffers (tag gradients) that accumulate until reset_gradients()
  void reset_gradients();

 private:
  WeightTable table_;
  DType dtype_;
  std::vector<Parameter> parameters_;
};

}  // namespace temper::layers
