#pragma once
#include "tensor/dtype.h"

namespace temper::backends {

// FLOP/s of this room's best product of float32 or bfloat16 matrices on `threads` threads: the limit that
// step lines compare with. Measured in a quarter of a second on first use, then remembered for the process.
double measured_matmul_peak(DType dtype, int threads);

}  // namespace temper::backends
