#include "backends/onednn/peak.h"

#include <algorithm>

#include "backends/onednn/product.h"
#include "base/clock.h"
#include "base/threads.h"

namespace temper::backends {
namespace {

// The best of several runs: whatever else the machine does can only slow one down.
double measure(DType dtype, int threads) {
  const int64_t m = 1024, n = 512 * std::max(threads, 2), k = 1024;  // two tiles for each thread
  const Tensor a = Tensor::zeros({m, k}, dtype, MemoryTag::kWorkspace);
  const Tensor b = Tensor::zeros({n, k}, dtype, MemoryTag::kWorkspace);
  const Tensor c = Tensor::empty({m, n}, dtype, MemoryTag::kWorkspace);
  const Product product{.a = rows_of(a), .b = transpose_of(b), .m = m, .n = n, .k = k, .c = c, .bias = {}};
  multiply(product);  // touches memory and compiles
  double best = 0;
  for (const double start = seconds_now(); seconds_now() - start < 0.25;) {
    const double before = seconds_now();
    multiply(product);
    best = std::max(best, 2.0 * static_cast<double>(m * n * k) / (seconds_now() - before));
  }
  return best;
}

}  // namespace

double onednn_matmul_peak(DType dtype, int threads) {
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("[peak] dtype is {}, needs float32 or bfloat16", to_string(dtype));
  const int before = num_threads();
  set_num_threads(threads);
  const double peak = measure(dtype, threads);
  set_num_threads(before);
  return peak;
}

}  // namespace temper::backends
