#pragma once
#include <functional>

#include "device/facts.h"
#include "tensor/dtype.h"

namespace temper::backends {

// Measures a limit of matrix multiplications in floating-point operations per second. 0 where a room cannot
// tell.
struct PeakProbe {
  enum class Kind {
    kRegisters,  // of multiply-adds in registers alone, which nothing exceeds
    kProducts,   // what the room's best product of large matrices reaches
  };
  Kind kind;
  double (*measure)(DType dtype, int threads);

  bool operator==(const PeakProbe&) const = default;
};

// The most of what runs return: whatever else the machine does can only slow one down. Ends when `enough` in
// a row have brought no hundredth more, and after a quarter of a second in any case.
double best_of_runs(int enough, const std::function<double()>& run);

// The best of registers; where none can tell the best of products; 0 when no room has either. Measured once
// per process, which takes about a tenth of a second, and kept.
double measured_matmul_peak(DType dtype, int threads);

// Of products on this hardware: measured on a CPU; of a device what its maker publishes, 0 where that is not
// known.
double matmul_peak(const HardwareFacts& facts, DType dtype, int threads);

// Bytes per second that a copy of much more than the caches hold reads and writes together, measured once per
// process, for about a quarter of a second.
double measured_memory_bandwidth(int threads);

}  // namespace temper::backends
