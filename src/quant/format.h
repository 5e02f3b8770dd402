#pragma once
#include "quant/element.h"

// The arithmetic of quantization, once for what fakes a format in training and for what encodes weights:
// constexpr functions run on CPUs and on devices. All of it is float32, each operation rounded by itself.
namespace temper::quant {

// How a number becomes one that is near an element, and back; L is the largest element.
enum class Scaling : uint8_t {
  kIntegers,     // s = L / amax; x · s, q / s
  kFloats,       // s = L / amax; x · s, q · (1 / s)
  kScales,       // d = amax / L; x / d, q · d: as readers of files compute, which have d
  kTwoLevels,    // x / d, q · d with d = E4M3(block's amax / (6 g)) · g, where g = amax / (6 · 448)
  kPowersOfTwo,  // x / d, q · d with d = 2^ceil(log2(block's amax / L))
  kZeroPoints,   // integers whose zero stands anywhere, by both ends of a range (quant/zero_points.h)
};

struct Format {
  Element element = {};
  Scaling scaling = Scaling::kIntegers;
  int block =
      0;  // consecutive elements of a row that have a scale of their own, made of their values; 0: none

  constexpr bool has_blocks() const { return block > 0; }
  constexpr bool needs_amax() const { return scaling != Scaling::kPowersOfTwo; }
  // Then there are two ends: the largest value, in the place of amax, and the least one.
  constexpr bool has_zero_points() const { return scaling == Scaling::kZeroPoints; }
  bool operator==(const Format&) const = default;
};

constexpr Format by_scales(const Element& element) { return {element, Scaling::kScales}; }
constexpr Format by_zero_points(const Element& element) { return {element, Scaling::kZeroPoints}; }

inline constexpr float kLeastAmax = 0x1p-24f;  // from there down, amax counts as 0

struct Factors {
  float by = 1, back = 1;
};

// Of elements that share `amax`. With 0 every finite element becomes 0 or, in kFloats, is quantized as if it
// were 1 (in kScales files have d = 1 then); with NaN or infinity every element becomes NaN.
constexpr Factors factors_of(const Format& format, float amax) {
  if (format.scaling == Scaling::kIntegers) {
    if (amax <= kLeastAmax) return {0, 1};
    const float by = format.element.largest / amax;
    return {by, by};
  }
  if (format.scaling == Scaling::kScales) {
    if (amax <= kLeastAmax) return {std::bit_cast<float>(0x7F800000u), 1};
    const float scale = amax / format.element.largest;
    return {scale, scale};
  }
  const float by = format.element.largest / (amax <= kLeastAmax ? 1.f : amax);
  return {by, 1 / by};
}

// kTwoLevels: of a whole matrix.
constexpr float global_scale(float amax) { return amax / (6.f * 448.f); }

// kTwoLevels: an element of E4M3. 1 for blocks of zeros, between 2^-9 and 448 otherwise.
constexpr float block_scale(float block_amax, float global) {
  const float scale = block_amax / (6 * global);
  if (!(global > 0) || scale == 0) return 1;
  return round_to(e4m3(), scale < 0x1p-9f ? 0x1p-9f : scale);
}

// kPowersOfTwo: the power as it is stored, its exponent + 127, from 0 to 254. Exact, where a rounded
// logarithm would take 2^k for what is a few units of the last place above it.
constexpr uint32_t power_code(const Element& element, float block_amax) {
  const auto bits = std::bit_cast<uint32_t>(block_amax / element.largest);
  const uint32_t exponent = bits >> 23, rest = bits & 0x7FFFFF;
  const uint32_t code = exponent == 0 ? (rest > 0x400000 ? 1 : 0) : exponent + (rest != 0 ? 1 : 0);
  return code > 254 ? 254 : code;
}
constexpr float power_of(uint32_t code) { return std::bit_cast<float>(code == 0 ? 0x400000u : code << 23); }

// Of a block with its own scale; amax is that of the whole, which kPowersOfTwo ignores. With NaN or infinity
// in either, every element becomes NaN.
constexpr Factors factors_of_block(const Format& format, float block_amax, float amax) {
  const bool two_levels = format.scaling == Scaling::kTwoLevels;
  const float infinity = std::bit_cast<float>(0x7F800000u);
  if (!(block_amax < infinity) || (two_levels && !(amax < infinity))) {
    const auto nan = std::bit_cast<float>(0x7FC00000u);
    return {nan, nan};
  }
  if (!two_levels) {
    const float scale = power_of(power_code(format.element, block_amax));
    return {scale, scale};
  }
  const float global = global_scale(amax), scale = block_scale(block_amax, global) * global;
  return {scale > 0 ? scale : 1, scale};
}

// An element of the format, scaled by the first of the factors. In kTwoLevels -0 is 0.
constexpr float quantized(const Format& format, float x, float by) {
  const bool divides = format.has_blocks() || format.scaling == Scaling::kScales;
  const float near = divides ? x / by : x * by;
  return round_to(format.element, format.scaling == Scaling::kTwoLevels ? near + 0.f : near);
}

// By the second.
constexpr float dequantized(const Format& format, float element, float back) {
  return format.scaling == Scaling::kIntegers ? element / back : element * back;
}

}  // namespace temper::quant
