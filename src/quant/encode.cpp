#include <cmath>

#include "base/error.h"
#include "quant/number_format.h"
#include "quant/packing.h"

namespace temper::quant {
namespace {

// One amax for each matrix, or one in all.
Shape ones_of(const Shape& values) {
  Shape ones = values;
  for (int d = 0; d < ones.ndim(); ++d) ones[d] = 1;
  return ones;
}

void check_columns(std::string_view name, const Format& format, const Groups& groups) {
  if (format.has_blocks() && groups.columns % format.block != 0)
    fail("[{}] has {} columns, which blocks of {} do not divide", name, groups.columns, format.block);
  if (format.has_blocks() && (groups.row_groups != 1 || groups.column_groups != 1))
    fail("[{}] has {} by {} amax in each matrix, the format needs one", name, groups.row_groups,
         groups.column_groups);
}

void check_finite(std::string_view name, std::string_view what, std::span<const float> values) {
  for (const float value : values)
    if (!std::isfinite(value)) fail("[{}] {} is {}: it has no code", name, what, value);
}

uint8_t scale_code(const Format& format, float block_amax, float amax) {
  if (format.scaling == Scaling::kPowersOfTwo)
    return static_cast<uint8_t>(power_code(format.element, block_amax));
  return code_of(kE4M3, block_scale(block_amax, global_scale(amax)));
}

Tensor scales_of(const Format& format, const Shape& values) {
  if (!format.has_blocks()) return {};
  Shape shape = values;
  shape[shape.ndim() - 1] /= format.block;
  return Tensor::zeros(shape, DType::kU8, MemoryTag::kData);
}

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

}  // namespace

Encoded encode(std::string_view name, const Format& format, const Tensor& values, const Tensor& amax) {
  if (format.needs_amax() && !amax.defined()) fail("[{}] has no amax: calibrate the model first", name);
  invariant(!format.has_zero_points(), "zero points are encoded by encode_with_zeros()");
  const Groups groups =
      groups_of(name, values.shape(), amax.defined() ? amax.shape() : ones_of(values.shape()));
  check_columns(name, format, groups);
  const Tensor wide = values.to(DType::kF32);
  const auto numbers = wide.values<float>();
  check_finite(name, "a value", numbers);
  if (amax.defined()) check_finite(name, "amax", amax.values<float>());
  const Tensor codes = Tensor::empty(values.shape(), DType::kU8, MemoryTag::kData);
  const Tensor scales = scales_of(format, values.shape());
  // Elements that share their factors.
  const int64_t run = format.has_blocks() ? format.block : groups.width();
  const int64_t runs = groups.columns / std::max<int64_t>(run, 1);
  for (int64_t row = 0; row < groups.experts * groups.rows; ++row)
    for (int64_t r = 0; r < runs; ++r) {
      const int64_t first = row * groups.columns + r * run;
      const auto own = numbers.subspan(static_cast<size_t>(first), static_cast<size_t>(run));
      const float* const shared = amax.defined() ? amax.data<float>() + groups.first(row) : nullptr;
      Factors factors;
      if (format.has_blocks()) {
        const float whole = shared != nullptr ? *shared : 0, largest = largest_of(own);
        factors = factors_of_block(format, largest, whole);
        scales.data<uint8_t>()[row * runs + r] = scale_code(format, largest, whole);
      } else {
        factors = factors_of(format, shared[r]);
      }
      for (int64_t i = 0; i < run; ++i)
        codes.data<uint8_t>()[first + i] =
            code_of(format.element, quantized(format, own[static_cast<size_t>(i)], factors.by));
    }
  return {packed_columns(name, codes, format.element.bits), scales, format.needs_amax() ? amax : Tensor()};
}

}  // namespace temper::quant
