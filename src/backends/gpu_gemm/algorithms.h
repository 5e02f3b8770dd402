#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "backends/gpu_gemm/library.h"
#include "backends/gpu_gemm/product.h"

namespace temper::backends {

// A product as the library sees it: columns first, d [m, n] = op(a) op(b).
struct ProductShape {
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldd = 0;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;
  uint32_t alignment = 16;  // of the operands' addresses, in bytes: at most 16 matters
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  bool alike = false;  // GpuProduct::alike; rows are columns here

  auto operator<=>(const ProductShape&) const = default;
  std::string key() const;  // for files
};

struct ProductCall {
  const void* a;
  const void* b;
  void* d;
  const void* bias;
  void* workspace;  // kProductWorkspace bytes
  float scale;
};

// Launches a product with the algorithm kept for its shape, this GPU and this library
// (backends/timed_choices.h); a new shape's is the fastest of the library's suggestions, measured on the
// call's own operands. Thread-safe.
void run_product(const ProductShape& shape, const ProductCall& call, Device device);

}  // namespace temper::backends
