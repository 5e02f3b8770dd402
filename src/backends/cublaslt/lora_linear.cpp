#include "backends/gpu_gemm/lora_linear.h"

#include "ops/lora_linear/lora_linear.h"

namespace temper::backends {
namespace {

struct ByCublaslt {
  static void multiply(const UpdatedProduct& product) { multiply_and_update(product); }
  static void narrow(const NarrowGradients& op) { narrow_gradients(op); }
  static constexpr bool kTakeSwiglu = false;
};

}  // namespace

void register_cublaslt_lora_linear() {
  ops::kernels<ops::LoraLinear>().add(
      "cublaslt", lora_linear_by<ByCublaslt>(ops::accept_all<ops::LoraLinear::Signature>));
}

}  // namespace temper::backends
