#pragma once
#include <optional>

#include "models/export_forms.h"

// Integers with zero points, and integers of weights and inputs whose inputs find their scales by token:
// compressed-tensors has them and nvidia-modelopt has not.
namespace temper::models {

// Nothing where neither the weight nor its input is of that kind; an Error "[export] …" that names the
// weight's quantizer where compressed-tensors does not know it either. `input` is null for inputs that are
// read as they are.
std::optional<ExportedForm> integer_form(const quantizers::PlannedQuantizer& weight,
                                         const quantizers::PlannedQuantizer* input);

}  // namespace temper::models
