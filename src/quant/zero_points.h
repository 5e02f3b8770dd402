#pragma once
#include <string_view>

#include "quant/format.h"
#include "quant/groups.h"

// Integers whose zero stands where the values' range wants it (asymmetric quantization; Jacob et al.,
// "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018):
//   q = clip(round(x / step) + zero),  y = (q - zero) · step
// All of it is float32, each operation rounded by itself, ties to even; the functions that encode also fake.
namespace temper::quant {

struct ZeroPoint {
  float step = 1;
  float zero = 0;  // an integer of the element
};

// Whole numbers as far as they matter: beyond, every integer of 8 bits and less is at its end.
constexpr Element whole_numbers() { return {32, 9, 9, -512, 512, true}; }

// Of values from `low` to `high`. Zero has a code: the range is widened to hold it. A range of 2^-24 and less
// has the step 1, with which its values become 0; with one that is not finite every value becomes NaN.
constexpr ZeroPoint zero_point_of(const Element& element, float low, float high) {
  if (!(high - low < std::bit_cast<float>(0x7F800000u))) return {std::bit_cast<float>(0x7FC00000u), 0};
  const float least = low < 0 ? low : 0, range = (high > 0 ? high : 0) - least;
  if (range <= 0x1p-24f) return {1, element.lowest};
  const float step = range / (element.largest - element.lowest);
  const float zero = element.lowest - round_to(whole_numbers(), least / step);
  return {step, zero > element.largest ? element.largest : zero};
}

// The integer that represents x: one of the element's.
constexpr float integer_of(const Element& element, const ZeroPoint& at, float x) {
  const float whole = round_to(whole_numbers(), x / at.step) + at.zero;
  return whole < element.lowest ? element.lowest : whole > element.largest ? element.largest : whole;
}
constexpr float value_of(const ZeroPoint& at, float integer) { return (integer - at.zero) * at.step; }

// q - zero of the least and of the largest code: value_of(integer_of(x)) is x / step, rounded to a whole
// number between these, times the step, since sums of small whole numbers are exact.
struct Multiples {
  float least = 0, most = 0;
};
constexpr Multiples multiples_of(const Element& element, const ZeroPoint& at) {
  return {element.lowest - at.zero, element.largest - at.zero};
}

// The ends of groups of values, which hold zero: float32 of the shape that quant/groups.h describes for amax.
struct Bounds {
  Tensor low;   // at most 0; [rows, 1] of channels, …
  Tensor high;  // at least 0, the same shape
};
Bounds bounds_of(const Tensor& values, const Shape& shape);

// Values as they are stored; `zeros` are codes, too.
struct EncodedWithZeros {
  Tensor codes;  // uint8 [rows, columns], or packed along the columns (quant/packing.h), or with experts in
                 // front
  Tensor steps;  // float32 [row groups, column groups]
  Tensor zeros;  // uint8, the same shape
};

// Values (compact, on the CPU, any floating-point dtype) in integers of 2 to 8 bits. An Error "[name] …"
// where a value or a bound is not finite, where bounds do not fit, and where codes do not fill bytes.
EncodedWithZeros encode_with_zeros(std::string_view name, const Element& element, const Tensor& values,
                                   const Bounds& bounds);

}  // namespace temper::quant
