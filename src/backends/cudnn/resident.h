#pragma once
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace temper::backends::cudnn {

// These values on a device as int32 or int64. The last few hundred sets are kept: the layers of a model ask
// for the same ones. Never waits for the device.
Tensor resident(const std::vector<int64_t>& values, DType dtype, Device device);

}  // namespace temper::backends::cudnn
