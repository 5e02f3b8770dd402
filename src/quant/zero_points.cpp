#include "quant/zero_points.h"

#include <cmath>

#include "base/error.h"
#include "quant/packing.h"

namespace temper::quant {
namespace {

void check_finite(std::string_view name, const char* what, float value) {
  if (!std::isfinite(value))
    fail("[{}] {} is {}: it has no code", name, what, std::isnan(value) ? std::nanf("") : value);
}

}  // namespace

Bounds bounds_of(const Tensor& values, const Shape& shape) {
  return {amax_of(values, shape, Extreme::kLow), amax_of(values, shape, Extreme::kHigh)};
}

EncodedWithZeros encode_with_zeros(std::string_view name, const Element& element, const Tensor& values,
                                   const Bounds& bounds) {
  const Groups groups = groups_of(name, values.shape(), bounds.low.shape());
  invariant(bounds.high.shape() == bounds.low.shape(), "both ends of a range are of the same groups");
  const Tensor codes = Tensor::empty(values.shape(), DType::kU8, MemoryTag::kData),
               steps = Tensor::empty(bounds.low.shape(), DType::kF32, MemoryTag::kData),
               zeros = Tensor::empty(bounds.low.shape(), DType::kU8, MemoryTag::kData);
  std::vector<ZeroPoint> points;
  for (int64_t group = 0; group < steps.numel(); ++group) {
    const float low = bounds.low.data<float>()[group], high = bounds.high.data<float>()[group];
    check_finite(name, "a bound", low);
    check_finite(name, "a bound", high);
    points.push_back(zero_point_of(element, low, high));
    check_finite(name, "the width of a range", points.back().step);
    steps.data<float>()[group] = points.back().step;
    zeros.data<uint8_t>()[group] = code_of(element, points.back().zero);
  }
  const Tensor wide = values.to(DType::kF32);
  for (int64_t row = 0, i = 0; row < groups.experts * groups.rows; ++row)
    for (int64_t column = 0; column < groups.columns; ++column, ++i) {
      const auto group = static_cast<size_t>(groups.first(row) + column / groups.width());
      const float x = wide.data<float>()[i];
      check_finite(name, "a value", x);
      codes.data<uint8_t>()[i] = code_of(element, integer_of(element, points[group], x));
    }
  return {packed_columns(name, codes, element.bits), steps, zeros};
}

}  // namespace temper::quant
