#pragma once
#include <algorithm>

#include "device/cuda/driver.h"
#include "device/cuda/stream.h"
#include "tensor/tensor.h"

namespace temper::backends {

// How a GPU's copies find boxes in a tensor (CUDA driver API, tensor maps); what lies outside reads as zeros
// and is not written. `sizes`: of the dimensions, the innermost first; `strides`: of all but the innermost,
// in bytes.
template <int kDims>
CUtensorMap tensor_map(const Tensor& tensor, CUtensorMapDataType type, const cuuint64_t* sizes,
                       const cuuint64_t* strides, const cuuint32_t* box, CUtensorMapSwizzle swizzle) {
  cuuint32_t steps[kDims];
  std::fill_n(steps, kDims, 1);
  CUtensorMap map;
  device::check(device::driver().tensor_map_encode_tiled(&map, type, kDims, tensor.raw(), sizes, strides, box,
                                                         steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace temper::backends
