#pragma once
#include "quant/number_format.h"
#include "quant/zero_points.h"

// What codes mean, for tests of those that write them: the program itself stores codes and never reads these.
namespace temper::quant {

// What encode() has encoded, as ops/fake_quantize gives it, bit for bit; compact, on the CPU.
Tensor decode(const Format& format, const Encoded& encoded, DType dtype);
Tensor decode_with_zeros(const Element& element, const EncodedWithZeros& encoded, DType dtype);

}  // namespace temper::quant
