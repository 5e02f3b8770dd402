#include "backends/gpu_gemm/product.h"

#include <bit>
#include <memory>

#include "backends/gpu_gemm/algorithms.h"
#include "backends/gpu_gemm/few_columns.h"
#include "device/cuda/stream.h"

namespace temper::backends {
namespace {

constexpr int64_t kWorkspaceAlign = 256;  // the library refuses less

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::kF32) return CUDA_R_32F;
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// The library counts columns first: a row-major matrix is its transpose there, and d' = op(b)' op(a)'.
ProductShape shape_of(const GpuProduct& p) {
  ProductShape shape;
  shape.m = p.d.dim(1);
  shape.n = p.d.dim(0);
  shape.k = p.transpose_a ? p.a.dim(0) : p.a.dim(1);
  shape.transpose_a = p.transpose_b;
  shape.transpose_b = p.transpose_a;
  shape.lda = p.b.stride(0);
  shape.ldb = p.a.stride(0);
  shape.ldd = p.d.stride(0);
  shape.in = type_of(p.a.dtype());
  shape.out = type_of(p.d.dtype());
  shape.accumulate = p.accumulate;
  shape.bias = p.bias.defined();
  shape.alike = p.alike;
  uintptr_t addresses = 16;
  for (const Tensor* tensor : {&p.a, &p.b, &p.d}) addresses |= reinterpret_cast<uintptr_t>(tensor->raw());
  shape.alignment = 1u << std::countr_zero(addresses);
  return shape;
}

}  // namespace

void multiply(const GpuProduct& p) {
  if (p.d.numel() == 0) return;
  const ProductShape shape = shape_of(p);
  if (shape.k == 0) {
    if (!p.accumulate) p.d.fill_zero();
    return;
  }
  const Device device = p.d.device();
  if (p.alike && has_few_columns(p)) {
    if (!only_counts(device)) multiply_few_columns(p);
    return;
  }
  // The one stream orders the products, so they can share one workspace.
  const Tensor workspace =
      Tensor::empty({kProductWorkspace + kWorkspaceAlign}, DType::kU8, MemoryTag::kWorkspace, device);
  if (only_counts(device)) return;
  void* begin = workspace.raw();
  size_t room = static_cast<size_t>(workspace.bytes());
  std::align(kWorkspaceAlign, static_cast<size_t>(kProductWorkspace), begin, room);
  run_product(shape,
              {p.b.raw(), p.a.raw(), p.d.raw(), p.bias.defined() ? p.bias.raw() : nullptr, begin, p.scale},
              device);
}

}  // namespace temper::backends
