// Matrices in 8 bits, as wide as products read them.
#include "backends/cuda/primitives/primitives.h"
#include "backends/gpu/float8.h"
#include "backends/gpu/device_code.h"

namespace temper::backends {
namespace {

constexpr int kAhead = 4;  // loads that a thread has under way
constexpr unsigned kRowThreads = 128;

template <class T, int N>
__device__ void widen_codes(const Pack<uint8_t, N>& codes, float scale, T* to) {
  const auto* twos = reinterpret_cast<const uint16_t*>(codes.values);
  Pack<T, N> out;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float2 values = decode(twos[i / 2]);
    out.values[i] = narrow<T>(scale * values.x);
    out.values[i + 1] = narrow<T>(scale * values.y);
  }
  store_pack(to, out);
}

// Rows of whole packs, each as many codes as a store of 16 bytes takes: loads and stores of a warp leave no
// gaps. The grid's y is the row.
template <class T>
__global__ void dequantize_packs(const uint8_t* codes, const float* scales, T* y, int rows, int packs) {
  constexpr int kCodes = kLanes<T>;
  const int step = static_cast<int>(blockDim.x);
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    const float scale = scales[row];
    const int64_t first = int64_t{row} * packs * kCodes;
    for (int pack = blockIdx.x * step * kAhead + threadIdx.x; pack < packs;
         pack += gridDim.x * step * kAhead) {
      Pack<uint8_t, kCodes> in[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (pack + i * step < packs)
          in[i] = load_pack<uint8_t, kCodes>(codes + first + int64_t{pack + i * step} * kCodes);
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (pack + i * step < packs)
          widen_codes<T, kCodes>(in[i], scale, y + first + int64_t{pack + i * step} * kCodes);
    }
  }
}

template <class T>
__global__ void dequantize_each(const uint8_t* codes, const float* scales, T* y, int64_t count,
                                int64_t columns) {
  for (int64_t i = global_thread(); i < count; i += grid_threads())
    y[i] = narrow<T>(scales[i / columns] * decode(codes[i]).x);
}

void dequantize(const Tensor& codes, const Tensor& scales, const Tensor& y) {
  const int64_t rows = codes.dim(0), columns = codes.dim(1);
  if (y.numel() == 0) return;
  const cudaStream_t stream = device::stream(y.device());
  const auto* from = static_cast<const uint8_t*>(codes.raw());
  visit_device_float(y.dtype(), [&]<class T>() {
    auto* to = static_cast<T*>(y.raw());
    if (columns % kLanes<T> == 0 && is_aligned(codes) && is_aligned(y)) {
      const int64_t packs = columns / kLanes<T>, of_block = int64_t{kRowThreads} * kAhead;
      const dim3 grid(static_cast<unsigned>((packs + of_block - 1) / of_block),
                      static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
      dequantize_packs<<<grid, kRowThreads, 0, stream>>>(from, scales.data<float>(), to,
                                                         static_cast<int>(rows), static_cast<int>(packs));
    } else {
      dequantize_each<<<blocks_for(y.numel()), kThreads, 0, stream>>>(from, scales.data<float>(), to,
                                                                      y.numel(), columns);
    }
  });
  device::check_launch("dequantize");
}

}  // namespace

void set_quantized(primitives::PrimitiveFunctions& functions) { functions.dequantize = dequantize; }

}  // namespace temper::backends
