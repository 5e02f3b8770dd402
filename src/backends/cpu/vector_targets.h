#pragma once
#include <hwy/highway.h>

#include "device/cpu_features.h"

namespace temper::backends {

// Highway's kernels take the best vectors of the processor; so that a limit (device/cpu_features.h) holds for
// them, too, each room that has such kernels calls this when it registers them.
inline void limit_vector_targets() {
#if HWY_ARCH_X86
  // Better targets have lower bits.
  if (has_cpu_feature("avx512f")) return;
  hwy::DisableTargets((has_cpu_feature("avx2") ? HWY_AVX2 : HWY_SSE4) - 1);
#endif
}

}  // namespace temper::backends
