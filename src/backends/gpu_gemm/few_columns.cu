#include "backends/gpu_gemm/few_columns.h"

#include "backends/gpu/dependent_launch.h"

namespace temper::backends {
namespace {

using Brain = __nv_bfloat16;

constexpr int64_t kMostColumns = 7;

struct Arguments {
  const Brain *a, *b, *bias;
  int64_t a_stride, b_stride, d_stride, rows, inner;
  int columns;
  float scale;
  bool accumulate;
};

template <class T>
__global__ void __launch_bounds__(kThreads) multiply_elements(const Arguments p, T* d) {
  wait_for_inputs();
  const int64_t element = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int64_t row = element / p.columns, column = element % p.columns;
  if (row >= p.rows) return;
  const Brain *const a = p.a + row * p.a_stride, *const b = p.b + column * p.b_stride;
  float sum = 0;
  for (int64_t i = threadIdx.x % 32; i < p.inner; i += 32) sum += widen(a[i]) * widen(b[i]);
  sum = warp_sum(sum) * p.scale;
  if (threadIdx.x % 32 != 0) return;
  T* const to = d + row * p.d_stride + column;
  if (p.bias != nullptr) sum += widen(p.bias[column]);
  if (p.accumulate) sum += widen(*to);
  *to = narrow<T>(sum);
}

}  // namespace

bool has_few_columns(const GpuProduct& product) { return product.d.dim(1) <= kMostColumns; }

void multiply_few_columns(const GpuProduct& p) {
  invariant(p.alike && p.transpose_b && !p.transpose_a && p.a.dtype() == DType::kBF16,
            "products alike are of rows by rows, in bfloat16");
  const auto at = [](const Tensor& x) { return x.defined() ? static_cast<const Brain*>(x.raw()) : nullptr; };
  const Arguments arguments{at(p.a),
                            at(p.b),
                            at(p.bias),
                            p.a.stride(0),
                            p.b.stride(0),
                            p.d.stride(0),
                            p.d.dim(0),
                            p.a.dim(1),
                            static_cast<int>(p.d.dim(1)),
                            p.scale,
                            p.accumulate};
  const auto blocks = static_cast<unsigned>((p.d.numel() * 32 + kThreads - 1) / kThreads);
  visit_wide_or_brain(p.d.dtype(), [&]<class T>() {
    DependentLaunch{"a product of few columns", p.d.device(), blocks, kThreads}(multiply_elements<T>, arguments,
                                                                               static_cast<T*>(p.d.raw()));
  });
}

}  // namespace temper::backends
