#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tensor/tensor.h"

namespace temper {

// max |found - expected| / max |expected|; expected is float32 on the CPU.
inline double relative_error(const Tensor& found, const Tensor& expected) {
  EXPECT_EQ(found.numel(), expected.numel());
  double worst = 0, largest = 0;
  const Tensor a = found.on({}).to(DType::kF32).contiguous(), b = expected.on({}).contiguous();
  for (int64_t i = 0; i < b.numel(); ++i) {
    worst = std::max(worst, std::fabs(double{a.data<float>()[i]} - b.data<float>()[i]));
    largest = std::max(largest, std::fabs(double{b.data<float>()[i]}));
  }
  return worst / largest;
}

}  // namespace temper
