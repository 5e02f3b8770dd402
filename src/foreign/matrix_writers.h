#pragma once
#include "foreign/forms.h"
#include "foreign/modelopt_algorithms.h"

namespace temper::foreign {

// Null where matrices of the algorithm are only read.
WritesMatrix modelopt_writer(const ModeloptChoice& form, const QuantizedMatrix& matrix);
// The same codes and scales with the names and shapes of compressed-tensors (compressed_parts.h).
WritesMatrix compressed_writer(const ModeloptChoice& form, const QuantizedMatrix& matrix);

}  // namespace temper::foreign
