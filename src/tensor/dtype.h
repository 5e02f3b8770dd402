#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace temper {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8, kF8E4M3, kI8 };

int64_t size_of(DType dtype);
std::string_view to_string(DType dtype);                        // "float32", "bfloat16", …
std::optional<DType> dtype_from_string(std::string_view name);  // also "f32", "bf16", "torch.bfloat16", …
// What ops compute with; not kF8E4M3, whose values mean nothing without their scales.
inline bool is_float(DType dtype) { return dtype <= DType::kF16; }

// Brain float: the upper half of a float32. Rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const bool nan = (word & 0x7FFFFFFF) > 0x7F800000;
    bits = static_cast<uint16_t>(nan ? (word >> 16) | 0x40 : (word + 0x7FFF + ((word >> 16) & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// IEEE binary16, rounding to nearest even.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

// OCP FP8 E4M3: four bits of exponent, three of mantissa, no infinities; the largest is 448, the smallest
// 2^-9. Rounds to nearest even, to ±448 what lies beyond; NaN stays NaN.
struct Float8E4M3 {
  static constexpr float kLargest = 448;
  uint8_t bits = 0;
  Float8E4M3() = default;
  explicit Float8E4M3(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value), magnitude = word & 0x7FFFFFFF;
    // Subnormal: float addition does the rounding.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000;
    const uint32_t large = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1) - 0x3C000000) >> 20;
    const uint32_t rounded = magnitude < 0x3C800000 ? small : large < 0x7E ? large : 0x7E;
    bits = static_cast<uint8_t>(((word >> 24) & 0x80) | (magnitude > 0x7F800000 ? 0x7F : rounded));
  }
  explicit operator float() const {
    const uint32_t sign = uint32_t{bits & 0x80u} << 24, magnitude = bits & 0x7F;
    const float value = magnitude < 8       ? static_cast<float>(magnitude) * 0x1p-9f
                        : magnitude == 0x7F ? std::bit_cast<float>(0x7FC00000)
                                            : std::bit_cast<float>((magnitude << 20) + 0x3C000000);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
};

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<Float16>() {
  return DType::kF16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::kI8;
}
template <>
constexpr DType dtype_of<Float8E4M3>() {
  return DType::kF8E4M3;
}

// Calls f.template operator()<T>() with the C++ type of a floating-point dtype.
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kBF16:
      return f.template operator()<BFloat16>();
    case DType::kF16:
      return f.template operator()<Float16>();
    default:
      throw Error(fmt::format("expected a floating-point dtype, found {}", to_string(dtype)));
  }
}

}  // namespace temper
