#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace temper {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8 };

int64_t size_of(DType dtype);
std::string_view to_string(DType dtype);                           // "float32", "bfloat16", …
std::optional<DType> dtype_from_string(std::string_view name);     // also "f32", "bf16", "torch.bfloat16", …
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

template <class T>
constexpr DType dtype_of();
template <> constexpr DType dtype_of<float>() { return DType::kF32; }
template <> constexpr DType dtype_of<BFloat16>() { return DType::kBF16; }
template <> constexpr DType dtype_of<Float16>() { return DType::kF16; }
template <> constexpr DType dtype_of<int32_t>() { return DType::kI32; }
template <> constexpr DType dtype_of<int64_t>() { return DType::kI64; }
template <> constexpr DType dtype_of<uint8_t>() { return DType::kU8; }

// Calls f.template operator()<T>() with the C++ type of a floating-point dtype.
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: return f.template operator()<float>();
    case DType::kBF16: return f.template operator()<BFloat16>();
    case DType::kF16: return f.template operator()<Float16>();
    default: throw Error(fmt::format("expected a floating-point dtype, found {}", to_string(dtype)));
  }
}

}  // namespace temper
