#include "tensor/dtype.h"

namespace temper {

int64_t size_of(DType dtype) {
  static constexpr int64_t kSizes[] = {4, 2, 2, 4, 8, 1, 1, 1};
  return kSizes[static_cast<size_t>(dtype)];
}

std::string_view to_string(DType dtype) {
  static constexpr std::string_view kNames[] = {"float32", "bfloat16", "float16",       "int32",
                                                "int64",   "uint8",    "float8_e4m3fn", "int8"};
  return kNames[static_cast<size_t>(dtype)];
}

std::optional<DType> dtype_from_string(std::string_view name) {
  if (name.rfind("torch.", 0) == 0) name.remove_prefix(6);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8,
                            DType::kF8E4M3, DType::kI8})
    if (name == to_string(dtype)) return dtype;
  if (name == "f32" || name == "fp32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  if (name == "f16" || name == "fp16") return DType::kF16;
  return std::nullopt;
}

Float16::Float16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000, magnitude = word & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) {
    bits = static_cast<uint16_t>(sign | 0x7E00);
  } else if (magnitude >= 0x477FF000) {  // rounds to 2^16 or more
    bits = static_cast<uint16_t>(sign | 0x7C00);
  } else if (magnitude < 0x38800000) {  // subnormal: let float addition do the rounding
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  } else {
    const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
    bits = static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
  }
}

Float16::operator float() const {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 31, mantissa = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000 | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

}  // namespace temper
