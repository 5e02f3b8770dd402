#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "quantizers/quantizers.h"

// Quantizers of values that pass, in both processes: what weights alone do not say of a model's passes. (What
// quantizers make of weights travels as the weights.)
namespace temper::exchange {

// How each of them rounds, by its name: "fp8 by tensor, calibrated". `quantizers` null: none.
using Rounding = std::map<std::string, std::string>;
Rounding rounding_of(const quantizers::Quantizers* quantizers);
Json to_json(const Rounding& rounding);
Rounding rounding_from(const Json& json);  // the reverse
// An Error that names the first quantizer which the other side does not have, or which rounds otherwise.
void check_same(const Rounding& sent, const Rounding& own);

// What is calibrated of them: amax, ends of ranges and factors of columns, which travel with the weights.
// Views of what passes compute with, in one order on both sides. `quantizers` null: none.
std::vector<quantizers::NamedScales> scales_of(const quantizers::Quantizers* quantizers);
// An Error for what no calibration finds.
void check_scales(const std::string& name, const Tensor& values);

}  // namespace temper::exchange
