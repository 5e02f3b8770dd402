#pragma once
#include <string>
#include <string_view>

#include "foreign/forms.h"

// How the forms of quantized folders hold the scales of values that pass.
namespace temper::foreign {

// Of a format (quant::formats()) and the tensor that has its scale, or the reciprocal of one.
RoundedValues rounded_by(const ModelFolder& folder, std::string_view format, const std::string& scale,
                         bool is_reciprocal = false);
// Of int8 with zero points, which are I8.
RoundedValues rounded_by_zero_point(const ModelFolder& folder, std::string_view format,
                                    const std::string& scale, const std::string& zero_point);
// Of keys and values, where X.k_scale or X.v_scale is there: E4M3.
std::optional<RoundedValues> kept_values(const ModelFolder& folder, const QuantizedMatrix& matrix);

}  // namespace temper::foreign
