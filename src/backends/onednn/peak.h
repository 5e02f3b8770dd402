#pragma once
#include "backends/peak.h"

namespace temper::backends {

// This room's best product of float32 or bfloat16 matrices on `threads` threads, for PeakProbe.
double onednn_matmul_peak(DType dtype, int threads);

}  // namespace temper::backends
