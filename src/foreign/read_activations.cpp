#include "foreign/read_activations.h"

#include <cmath>

#include "base/error.h"
#include "foreign/modelopt_parts.h"
#include "foreign/quantized_codes.h"

namespace temper::foreign {
namespace {

float scale_in(const ModelFolder& folder, const std::string& name) {
  constexpr std::string_view kFloats[] = {"F32", "BF16", "F16"};
  const Shape shapes[] = {{}, {1}, {1, 1}};
  if (const auto misfit = misfit_of(folder, name, kFloats, shapes))
    fail("[{}] {}; write the folder again", folder.path(), *misfit);
  const float scale = number_in(folder, name);
  if (!std::isfinite(scale) || scale <= 0)
    fail("[{}] '{}' is {}, expected a number above 0; write the folder again", folder.path(), name, scale);
  return scale;
}

float zero_point_in(const ModelFolder& folder, const std::string& name) {
  constexpr std::string_view kIntegers[] = {"I8"};
  const Shape shapes[] = {{}, {1}, {1, 1}};
  if (const auto misfit = misfit_of(folder, name, kIntegers, shapes))
    fail("[{}] {}; write the folder again", folder.path(), *misfit);
  return *static_cast<const int8_t*>(folder.tensor(name).raw());
}

}  // namespace

RoundedValues rounded_by(const ModelFolder& folder, std::string_view format, const std::string& scale,
                         bool is_reciprocal) {
  const float found = scale_in(folder, scale);
  return {.format = std::string(format),
          .amax = amax_of_scale(quant::format_named(format), is_reciprocal ? 1 / found : found)};
}

RoundedValues rounded_by_zero_point(const ModelFolder& folder, std::string_view format,
                                    const std::string& scale, const std::string& zero_point) {
  const quant::Element& element = quant::format_named(format).element;
  const float step = scale_in(folder, scale), zero = zero_point_in(folder, zero_point);
  return {.format = std::string(format),
          .symmetric = false,
          .amax = (element.largest - zero) * step,
          .low = (element.lowest - zero) * step};
}

std::optional<RoundedValues> kept_values(const ModelFolder& folder, const QuantizedMatrix& matrix) {
  for (const char* ending : {".k_scale", ".v_scale"})
    if (const std::string scale = matrix.part(ending); folder.find(scale) != nullptr)
      return rounded_by(folder, "fp8", scale);
  return std::nullopt;
}

}  // namespace temper::foreign
