#pragma once
#include "backends/gpu/device_code.h"

// Sums of what the choices of a token have, in the order of the choices.
namespace temper::backends {

// y[0 … N) in float32, rounded once, of one token: add(j, values, sums) adds what choice j has, the N numbers
// from `rows` on in the row places[j], of `columns` columns.
template <class T, int N, class Add>
__device__ void sum_of_choices(const int* places, int top_k, const T* rows, int64_t columns, T* y,
                               const Add& add) {
  float sums[N] = {};
#pragma unroll 8
  for (int j = 0; j < top_k; ++j) {
    float own[N];
    widen_all(load_pack<T, N>(rows + places[j] * columns), own);
    add(j, own, sums);
  }
  Pack<T, N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum.values[k] = narrow<T>(sums[k]);
  store_pack(y, sum);
}

}  // namespace temper::backends
