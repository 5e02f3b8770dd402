#pragma once
#include "device/facts.h"
#include "tensor/dtype.h"

namespace temper::backends {

// Measures, for about a quarter of a second, a limit of matrix multiplications in floating-point operations
// per second: what a backend's best one of large matrices reaches, or what multiply-adds in registers alone
// do. 0 where a room cannot tell.
using PeakProbe = double (*)(DType dtype, int threads);  // rooms register theirs by provider

// The best of all probes, measured once per process and kept; 0 when no backend has one.
double measured_matmul_peak(DType dtype, int threads);

// Of products on this hardware: measured on a CPU; of a device what its maker publishes, 0 where that is not
// known.
double matmul_peak(const HardwareFacts& facts, DType dtype, int threads);

// Bytes per second that a copy of much more than the caches hold reads and writes together, measured once per
// process, for about a quarter of a second.
double measured_memory_bandwidth(int threads);

}  // namespace temper::backends
