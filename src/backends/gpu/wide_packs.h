#pragma once
#include "backends/gpu/device_code.h"

// Packs of a dtype as float32 in registers.
namespace temper::backends {

template <class T, int N>
__device__ void load_or_zero(float (&values)[N], const T* from) {  // null: zeros
  Pack<T, N> pack{};
  if (from != nullptr) pack = load_pack<T, N>(from);
  widen_all(pack, values);
}
template <class T, int N>
__device__ void store_narrow(T* to, const float (&values)[N]) {
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) pack.values[k] = narrow<T>(values[k]);
  store_pack(to, pack);
}

// 1 / (1 + exp(-value)) within a few units of the last place.
__device__ inline float logistic(float value) { return __fdividef(1, 1 + __expf(-value)); }

}  // namespace temper::backends
