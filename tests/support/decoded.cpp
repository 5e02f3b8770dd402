#include "tests/support/decoded.h"

#include <algorithm>

#include "quant/groups.h"
#include "quant/packing.h"

namespace temper::quant {
namespace {

// Calls each(i, row, column) for all values in their order.
template <class Each>
void for_each_value(const Groups& groups, const Each& each) {
  for (int64_t row = 0, i = 0; row < groups.experts * groups.rows; ++row)
    for (int64_t column = 0; column < groups.columns; ++column, ++i) each(i, row, column);
}

float scale_back(const Format& format, uint8_t code, float amax) {
  if (format.scaling == Scaling::kPowersOfTwo) return power_of(code);
  return number_of(kE4M3, code) * global_scale(amax);
}

Shape ones_of(const Shape& values) {
  Shape ones = values;
  for (int d = 0; d < ones.ndim(); ++d) ones[d] = 1;
  return ones;
}

}  // namespace

Tensor decode(const Format& format, const Encoded& encoded, DType dtype) {
  const Tensor codes = unpacked_columns(encoded.codes, format.element.bits), &amax = encoded.amax;
  const Tensor values = Tensor::empty(codes.shape(), DType::kF32, MemoryTag::kData);
  const Groups groups =
      groups_of("decode", codes.shape(), amax.defined() ? amax.shape() : ones_of(codes.shape()));
  for_each_value(groups, [&](int64_t i, int64_t row, int64_t column) {
    const float* const shared = amax.defined() ? amax.data<float>() + groups.first(row) : nullptr;
    const float back = format.has_blocks()
                           ? scale_back(format, encoded.scales.data<uint8_t>()[i / format.block],
                                        shared != nullptr ? *shared : 0)
                           : factors_of(format, shared[column / groups.width()]).back;
    values.data<float>()[i] = dequantized(format, number_of(format.element, codes.data<uint8_t>()[i]), back);
  });
  return values.to(dtype, MemoryTag::kData);
}

Tensor decode_with_zeros(const Element& element, const EncodedWithZeros& encoded, DType dtype) {
  const Tensor codes = unpacked_columns(encoded.codes, element.bits);
  const Tensor values = Tensor::empty(codes.shape(), DType::kF32, MemoryTag::kData);
  const Groups groups = groups_of("decode", codes.shape(), encoded.steps.shape());
  for_each_value(groups, [&](int64_t i, int64_t row, int64_t column) {
    const int64_t group = groups.first(row) + column / groups.width();
    const ZeroPoint at{encoded.steps.data<float>()[group],
                       number_of(element, encoded.zeros.data<uint8_t>()[group])};
    values.data<float>()[i] = value_of(at, number_of(element, codes.data<uint8_t>()[i]));
  });
  return values.to(dtype, MemoryTag::kData);
}

}  // namespace temper::quant
