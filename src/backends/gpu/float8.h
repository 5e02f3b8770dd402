#pragma once
#include <cuda_fp8.h>

// Codes of E4M3 on NVIDIA GPUs.
namespace temper::backends {

// Two codes. Exact: half precision holds every one.
__device__ inline float2 decode(uint16_t two) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
}

}  // namespace temper::backends
