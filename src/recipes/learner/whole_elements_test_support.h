#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "weights/layout.h"

// What ranks hold parts of compared with what one rank holds, for tests.
namespace temper::recipes {

// Of whole tensors, by their names.
using WholeElements = std::map<std::string, std::vector<float>>;

inline WholeElements elements_of(const std::vector<PlacedTensor>& whole) {
  WholeElements elements;
  for (const PlacedTensor& tensor : whole) {
    const auto values = tensor.own.contiguous().values<float>();
    elements[tensor.name] = {values.begin(), values.end()};
  }
  return elements;
}

// Those that this rank has a part of as they are now, in float32.
inline std::vector<PlacedTensor> copies_of(std::vector<PlacedTensor> tensors) {
  std::erase_if(tensors, [](const PlacedTensor& tensor) { return !tensor.placement->is_here(); });
  for (PlacedTensor& tensor : tensors) tensor.own = tensor.own.to(DType::kF32).clone();
  return tensors;
}

// Of what this rank holds; relative to the largest of a tensor.
inline void expect_elements(const std::vector<PlacedTensor>& found, const WholeElements& expected,
                            double tolerance) {
  for (const PlacedTensor& tensor : found) {
    const std::vector<float>& whole = expected.at(tensor.name);
    double largest = 1e-3, worst = 0;
    for (const float value : whole) largest = std::max(largest, std::abs(static_cast<double>(value)));
    const Tensor own = tensor.own.contiguous();
    for (const Slice& run : tensor.placement->runs(tensor.placement->part()))
      for (int64_t e = 0; e < run.count; ++e)
        worst = std::max(worst, std::abs(static_cast<double>(own.data<float>()[run.own + e]) -
                                         static_cast<double>(whole.at(static_cast<size_t>(run.whole + e)))));
    EXPECT_LT(worst, tolerance * largest) << tensor.name;
  }
}

}  // namespace temper::recipes
