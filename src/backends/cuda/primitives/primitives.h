#pragma once
#include "primitives/device_functions.h"

namespace temper::backends {

// Each sets its part of what GPUs compute for the primitives.
void set_elementwise(primitives::PrimitiveFunctions& functions);
void set_matmul(primitives::PrimitiveFunctions& functions);
void set_rows(primitives::PrimitiveFunctions& functions);
void set_quantized(primitives::PrimitiveFunctions& functions);
void set_nf4(primitives::PrimitiveFunctions& functions);
void set_amax(primitives::PrimitiveFunctions& functions);
void set_counts(primitives::PrimitiveFunctions& functions);

}  // namespace temper::backends
