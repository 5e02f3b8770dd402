#include <fmt/core.h>

#include "backends/gpu_gemm/lora_linear.h"
#include "backends/hopper/narrow_gradients.h"
#include "backends/hopper/updated_product.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::backends::hopper {
namespace {

struct ByHopper {
  static void multiply(const UpdatedProduct& product) { multiply_and_update_on_hopper(product); }
  static void narrow(const NarrowGradients& op) { narrow_gradients_on_hopper(op); }
  static constexpr bool kTakeSwiglu = true;
};

ops::Refusal accepts_whole_vectors(const ops::LoraLinear::Signature& s, const HardwareFacts& facts) {
  if (facts.compute_capability != 90 || s.dtype != DType::kBF16)
    return fmt::format("is for bfloat16 at compute capability 9.0, this is {} at {}.{}", to_string(s.dtype),
                       facts.compute_capability / 10, facts.compute_capability % 10);
  if (s.in % 8 != 0 || s.out % 8 != 0)
    return fmt::format("is for sizes that are multiples of 8, this is {} to {}", s.in, s.out);
  return std::nullopt;
}

// What products and gradients of others are, these leave to the library.
ops::Refusal accepts_any_size(const ops::LoraLinear::Signature& s, const HardwareFacts& facts) {
  return accepts_whole_vectors({.dtype = s.dtype}, facts);
}

}  // namespace

// In front of the library's kernel, to which it leaves what it is not for.
void register_hopper_lora_linear() {
  ops::kernels<ops::LoraLinear>().add_before("cublaslt", "hopper",
                                             lora_linear_by<ByHopper>(accepts_whole_vectors));
  ops::kernels<ops::LoraLinear>().add("hopper_invariant",
                                      invariant_lora_linear_by<ByHopper>(accepts_any_size));
}

}  // namespace temper::backends::hopper
