#pragma once
#include "layers/parameters/parameters.h"
#include "tests/support/op_testing.h"

namespace temper::training {

// Of all parameters, one after the other.
inline op_testing::Doubles gradients_of(const layers::ParameterStore& parameters) {
  op_testing::Doubles all;
  for (size_t i = 0; i < parameters.size(); ++i)
    for (const double value : op_testing::values_of(parameters[i].grad->grad())) all.push_back(value);
  return all;
}

}  // namespace temper::training
