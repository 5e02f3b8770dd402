// Matrices in 4 bits, as wide as products read them: one launch.
#include "backends/cuda/primitives/primitives.h"
#include "backends/gpu/device_code.h"
#include "primitives/nf4.h"

namespace temper::backends {
namespace {

constexpr int kCodes = 8;  // that a thread widens at once: 4 bytes, which become stores of 16
constexpr int kAhead = 4;
constexpr int64_t kBlocks = 132 * 8;  // each looks its tables up once, for several rows

struct Arguments {
  const uint8_t *codes, *scale_codes;
  const float *scales, *offsets;
  const int64_t* starts;
  int rows, columns;
  float numbers[16], scale_numbers[256];
};

template <class T, int N>
__device__ void widen_codes(const uint8_t (&codes)[N / 2], const float* numbers, float magnitude, T* to) {
  constexpr int kWidth = N < kLanes<T> ? N : kLanes<T>;
#pragma unroll
  for (int first = 0; first < N; first += kWidth) {
    Pack<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; k += 2) {
      const uint8_t two = codes[(first + k) / 2];
      out.values[k] = narrow<T>(__fmul_rn(numbers[two >> 4], magnitude));
      out.values[k + 1] = narrow<T>(__fmul_rn(numbers[two & 15], magnitude));
    }
    store_pack(to + first, out);
  }
}

// The grid's y is the row. Packs of N codes lie within a block of 64: rows begin at a multiple of N.
template <class T, int N, bool kDouble>
__global__ void __launch_bounds__(kThreads) widen_rows(const __grid_constant__ Arguments a, T* y) {
  __shared__ float numbers[16], scale_numbers[256];
  if (threadIdx.x < 16) numbers[threadIdx.x] = a.numbers[threadIdx.x];
  if constexpr (kDouble)
    for (unsigned i = threadIdx.x; i < 256; i += kThreads) scale_numbers[i] = a.scale_numbers[i];
  __syncthreads();
  const int packs = a.columns / N, step = static_cast<int>(gridDim.x) * kThreads * kAhead;
  for (int row = static_cast<int>(blockIdx.y); row < a.rows; row += static_cast<int>(gridDim.y)) {
    const int64_t first = int64_t{row} * a.columns, start = a.starts[row];
    const float offset = kDouble ? a.offsets[row] : 0;
    for (int pack = static_cast<int>(blockIdx.x * kThreads * kAhead + threadIdx.x); pack < packs; pack += step) {
      Pack<uint8_t, N / 2> in[kAhead];
      float magnitudes[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int column = (pack + i * kThreads) * N;
        if (column >= a.columns) continue;
        in[i] = load_pack<uint8_t, N / 2>(a.codes + (first + column) / 2);
        const int64_t block = (start + column) / quant::kNf4Block;
        if constexpr (kDouble)
          magnitudes[i] = __fadd_rn(
              __fmul_rn(scale_numbers[a.scale_codes[block]], a.scales[block / quant::kNf4ScaleBlock]), offset);
        else
          magnitudes[i] = a.scales[block];
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int column = (pack + i * kThreads) * N;
        if (column < a.columns) widen_codes<T, N>(in[i].values, numbers, magnitudes[i], y + first + column);
      }
    }
  }
}

void dequantize_nf4(const primitives::Nf4Matrix& matrix, const Tensor& y) {
  const int64_t rows = matrix.rows(), columns = matrix.columns();
  const bool is_double = matrix.is_double();
  Arguments arguments{matrix.codes.data<uint8_t>(),
                      is_double ? matrix.scale_codes.data<uint8_t>() : nullptr,
                      matrix.scales.data<float>(),
                      is_double ? matrix.offsets.data<float>() : nullptr,
                      matrix.starts.data<int64_t>(),
                      static_cast<int>(rows),
                      static_cast<int>(columns),
                      {},
                      {}};
  std::copy(quant::kNf4Numbers.begin(), quant::kNf4Numbers.end(), arguments.numbers);
  const quant::Nf4ScaleNumbers& numbers = quant::nf4_scale_numbers();
  std::copy(numbers.begin(), numbers.end(), arguments.scale_numbers);
  visit_device_float(y.dtype(), [&]<class T>() {
    const auto launch = [&]<int N, bool kDouble>() {
      const int64_t of_block = int64_t{kThreads} * kAhead * N;
      const int64_t across = (columns + of_block - 1) / of_block;
      const dim3 grid(static_cast<unsigned>(across),
                      static_cast<unsigned>(std::clamp<int64_t>(kBlocks / across, 1, rows)));
      widen_rows<T, N, kDouble>
          <<<grid, kThreads, 0, device::stream(y.device())>>>(arguments, static_cast<T*>(y.raw()));
    };
    const auto choose = [&]<int N>() {
      is_double ? launch.template operator()<N, true>() : launch.template operator()<N, false>();
    };
    columns % kCodes == 0 && is_aligned(matrix.codes) && is_aligned(y) ? choose.template operator()<kCodes>()
                                                                       : choose.template operator()<2>();
  });
  device::check_launch("dequantize_nf4");
}

}  // namespace

void set_nf4(primitives::PrimitiveFunctions& functions) { functions.dequantize_nf4 = dequantize_nf4; }

}  // namespace temper::backends
