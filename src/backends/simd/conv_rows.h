#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace temper::backends {

// One token of a causal convolution: the inputs that it reads, oldest first, null where there is none. Shared
// by the targets that Highway compiles for.
struct ConvRow {
  static constexpr int64_t kMaxWidth = 16;
  const void* inputs[kMaxWidth] = {};  // [channels] each, of the dtype
  int64_t width = 0, channels = 0, stride = 0;
  const float* weights = nullptr;  // [width, channels], rows `stride` apart
  DType dtype = DType::kF32;
};

}  // namespace temper::backends
