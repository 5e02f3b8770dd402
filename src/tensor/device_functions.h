#pragma once
#include "tensor/tensor.h"

namespace temper {

// What a type of device does with tensors that live on it, beyond moving bytes; the CPU's own need no
// registration. A room of backends registers them.
struct TensorFunctions {
  // The same shape and device, any strides; converts between floating-point dtypes.
  void (*copy)(const Tensor& to, const Tensor& from) = nullptr;
  void (*add)(const Tensor& dst, const Tensor& src) = nullptr;  // dst += src in float32, both compact
  void (*fill)(const Tensor& tensor, float value) = nullptr;    // compact
  // deviation · Random(seed, kInitialization).normal(first + i), rounded; compact.
  void (*fill_normal)(const Tensor& tensor, uint64_t seed, uint64_t first, double deviation) = nullptr;
};
void register_tensor_functions(DeviceType type, TensorFunctions functions);
const TensorFunctions& tensor_functions(Device device);  // an error where the build has none

}  // namespace temper
