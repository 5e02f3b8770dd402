#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "device/cuda/stream.h"
#include "tensor/tensor.h"

// What kernels for NVIDIA GPUs start from.
namespace temper::backends {

inline constexpr int kThreads = 256;

// Blocks for element-wise work: enough to fill any GPU, each thread then strides over what is left.
inline unsigned blocks_for(int64_t count, int64_t per_thread = 1) {
  const int64_t wanted = (count + kThreads * per_thread - 1) / (kThreads * per_thread);
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, 132 * 16));
}

// Shared memory that one block may have, if its kernel is allowed to.
inline int64_t scratch_bytes(Device device) {
  int bytes = 0;
  device::check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index),
                "cudaDeviceGetAttribute");
  return bytes;
}
template <class Kernel>
void allow_scratch(Kernel* kernel, size_t bytes) {
  device::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      "cudaFuncSetAttribute");
}

__device__ inline int64_t global_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_threads() { return int64_t{gridDim.x} * blockDim.x; }

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(__half value) { return __half2float(value); }

template <class T>
__device__ inline T narrow(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(value);
  else
    return __float2bfloat16_rn(value);
}

// 16 bytes of T, or fewer: loaded and stored at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};
template <class T>
inline constexpr int kLanes = 16 / sizeof(T);

// Read once: keep it out of the way of what is used again.
template <class T, int N>
__device__ inline Pack<T, N> load_once(const T* from) {
  constexpr size_t kBytes = sizeof(Pack<T, N>);
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  using Bits = std::conditional_t<kBytes == 16, int4, std::conditional_t<kBytes == 8, int2, int>>;
  const Bits bits = __ldcs(reinterpret_cast<const Bits*>(from));
  return *reinterpret_cast<const Pack<T, N>*>(&bits);
}
template <class T, int N>
__device__ inline Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// All of a pack. Pairs of bfloat16 are taken apart as words: one instruction each, where one by one the upper
// ones take two.
template <class T, int N>
__device__ inline void widen_all(const Pack<T, N>& pack, float (&values)[N]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    const auto* words = reinterpret_cast<const uint32_t*>(pack.values);
    for (int i = 0; i < N; ++i)
      values[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000u);
  } else {
    for (int i = 0; i < N; ++i) values[i] = widen(pack.values[i]);
  }
}

// All of a pack, rounded; pairs of bfloat16 by one instruction.
template <class T, int N>
__device__ inline Pack<T, N> narrow_all(const float (&values)[N]) {
  Pack<T, N> pack;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(pack.values);
    for (int i = 0; i < N; i += 2) pairs[i / 2] = __floats2bfloat162_rn(values[i], values[i + 1]);
  } else {
    for (int i = 0; i < N; ++i) pack.values[i] = narrow<T>(values[i]);
  }
  return pack;
}

// Whether packs of 16 bytes can be loaded from its beginning: a compact view may begin anywhere.
inline bool is_aligned(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; }
// Itself, or a copy where it is not.
inline Tensor aligned(const Tensor& tensor) {
  return !tensor.defined() || is_aligned(tensor) ? tensor : tensor.clone();
}

// exp(x) = power_of_2(kLog2E x), within two units of the last place; denormals are zero.
inline constexpr float kLog2E = 1.4426950408889634f;
__device__ inline float power_of_2(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
  return power;
}

__device__ inline float warp_sum(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lane));
  return value;
}

// The sum over a block of whole warps, in every thread, always in the same order. `shared` holds 32 floats.
__device__ inline float block_sum(float value, float* shared) {
  value = warp_sum(value);
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return value;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < warps ? shared[threadIdx.x % 32] : 0.f;
  return warp_sum(value);
}

// Calls f.template operator()<T>() with the device's type of a floating-point dtype.
template <class F>
void visit_device_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kBF16:
      return f.template operator()<__nv_bfloat16>();
    case DType::kF16:
      return f.template operator()<__half>();
    default:
      throw Error(fmt::format("expected a floating-point dtype, found {}", to_string(dtype)));
  }
}

// The same for the two dtypes that kernels are written for.
template <class F>
void visit_wide_or_brain(DType dtype, F&& f) {
  if (dtype == DType::kF32) return f.template operator()<float>();
  invariant(dtype == DType::kBF16, "kernels for GPUs take float32 and bfloat16");
  f.template operator()<__nv_bfloat16>();
}

}  // namespace temper::backends
