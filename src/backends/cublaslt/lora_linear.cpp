#include "backends/gpu_gemm/lora_linear.h"

#include "backends/cublaslt/cublaslt.h"

namespace temper::backends {
namespace {

struct ByCublaslt {
  static void multiply(const UpdatedProduct& product) { multiply_and_update(product); }
  static void narrow(const NarrowGradients& op) { narrow_gradients(op); }
  static constexpr bool kTakeSwiglu = false;
};

}  // namespace

ops::Kernel<ops::LoraLinear> cublaslt_lora_linear_kernel() {
  return lora_linear_by<ByCublaslt>(ops::accept_all<ops::LoraLinear::Signature>);
}

}  // namespace temper::backends
