#include "backends/cublaslt/cublaslt.h"

#include "backends/gpu_gemm/library.h"
#include "base/libraries.h"

namespace temper::backends {
namespace {

LibraryState probe() {
  if (!cublaslt_missing().empty()) return {false, cublaslt_missing()};
  const size_t version = cublaslt().version();
  return {true, fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)};
}

}  // namespace

void register_cublaslt();
void register_cublaslt() {
  registry<LibraryProbe>().add("cuBLASLt", probe);
  ops::kernels<ops::CrossEntropy>().add("cublaslt", cublaslt_cross_entropy_kernel());
  ops::kernels<ops::Linear>().add("cublaslt", cublaslt_linear_kernel());
  ops::kernels<ops::Linear>().add("cublaslt_invariant", cublaslt_invariant_linear_kernel());
  ops::kernels<ops::LoraLinear>().add("cublaslt", cublaslt_lora_linear_kernel());
}

}  // namespace temper::backends
