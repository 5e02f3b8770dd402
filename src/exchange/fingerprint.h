#pragma once
#include <map>
#include <string>

#include "layers/parameters/parameters.h"

namespace temper::exchange {

// A hash of a model's names, shapes and dtypes: of every parameter its name here, its shape, the dtype that
// it is kept in where that is its own, and its names in files. The model's own dtype is not in it, for
// values are converted as when a folder is loaded.
std::string fingerprint_of(const WeightTable& table);

// The dtype of a parameter and a hash of its bytes, row by row as the whole parameter has them.
struct ParameterHash {
  std::string dtype, digest;
  bool operator==(const ParameterHash&) const = default;
};
ParameterHash hash_of(const Tensor& value);
// Of every parameter and buffer of the table, by name.
std::map<std::string, ParameterHash> hashes_of(const layers::ParameterStore& parameters);

// One line for each name whose hashes differ or that one side does not have; none: all are alike.
std::vector<std::string> differences(const std::map<std::string, ParameterHash>& sent,
                                     const std::map<std::string, ParameterHash>& received);

}  // namespace temper::exchange
