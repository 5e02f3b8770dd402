#pragma once
#include <optional>
#include <string_view>

namespace temper::primitives {

// What the matrices of a model that is not trained are kept in, instead of their dtype.
enum class FrozenFormat {
  kFloat8,     // primitives/quantized.h
  kNf4,        // primitives/nf4.h
  kNf4Double,  // the same, with double quantization
};

constexpr bool is_nf4(FrozenFormat format) { return format != FrozenFormat::kFloat8; }
constexpr std::string_view to_string(FrozenFormat format) {
  if (format == FrozenFormat::kFloat8) return "float8_e4m3fn";
  return format == FrozenFormat::kNf4 ? "nf4" : "nf4_double";
}
constexpr std::optional<FrozenFormat> frozen_format_from_string(std::string_view name) {
  for (const FrozenFormat format : {FrozenFormat::kFloat8, FrozenFormat::kNf4, FrozenFormat::kNf4Double})
    if (to_string(format) == name) return format;
  return std::nullopt;
}

}  // namespace temper::primitives
