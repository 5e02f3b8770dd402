#include "backends/cublaslt/cublaslt.h"

#include "backends/cublaslt/library.h"

namespace temper::backends {

ops::Refusal refuse_without_cublaslt(const HardwareFacts& facts) {
  const bool here = facts.device.type == DeviceType::kCuda;
  if (here && !cublaslt_missing().empty()) return cublaslt_missing();
  return std::nullopt;
}

void register_cublaslt();
void register_cublaslt() {
  ops::kernels<ops::CrossEntropy>().add("cublaslt", cublaslt_cross_entropy_kernel());
  ops::kernels<ops::Linear>().add("cublaslt", cublaslt_linear_kernel());
}

}  // namespace temper::backends
