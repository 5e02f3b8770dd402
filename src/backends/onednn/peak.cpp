#include "backends/onednn/peak.h"

#include <algorithm>

#include "backends/onednn/product.h"
#include "base/clock.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

double measure(DType dtype, int threads) {
  const int64_t m = 1024, n = 512 * std::max(threads, 2), k = 1024;  // two tiles for each thread
  const Tensor a = Tensor::zeros({m, k}, dtype, MemoryTag::kWorkspace);
  const Tensor b = Tensor::zeros({n, k}, dtype, MemoryTag::kWorkspace);
  const Tensor c = Tensor::empty({m, n}, dtype, MemoryTag::kWorkspace);
  const Product product{.a = rows_of(a), .b = transpose_of(b), .k = k, .c = c};
  multiply(product);  // touches memory and compiles
  return best_of_runs(16, [&] {
    const double before = seconds_now();
    multiply(product);
    return 2.0 * static_cast<double>(m * n * k) / (seconds_now() - before);
  });
}

}  // namespace

double onednn_matmul_peak(DType dtype, int threads) {
  const int before = num_threads();
  set_num_threads(threads);
  const double peak = measure(dtype, threads);
  set_num_threads(before);
  return peak;
}

}  // namespace temper::backends
