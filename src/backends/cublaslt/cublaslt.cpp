#include "backends/cublaslt/cublaslt.h"

#include "backends/cublaslt/library.h"
#include "backends/libraries.h"

namespace temper::backends {

ops::Refusal refuse_without_cublaslt(const HardwareFacts& facts) {
  const bool here = facts.device.type == DeviceType::kCuda;
  if (here && !cublaslt_missing().empty()) return cublaslt_missing();
  return std::nullopt;
}

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
  ops::kernels<ops::LoraLinear>().add("hopper", hopper_lora_linear_kernel());
  ops::kernels<ops::LoraLinear>().add("cublaslt", cublaslt_lora_linear_kernel());
}

}  // namespace temper::backends
