#include "rollout/batch_invariant.h"

#include "ops/linear/linear.h"

namespace temper::rollout {

ops::FieldValues batch_invariant_fields(std::string_view device, DType dtype) {
  if (device == "cpu" && dtype == DType::kF32)
    return {{"linear", "onednn_invariant"},
            {"lora_linear", "onednn_invariant"},
            {"paged_attention", "onednn_invariant"}};
  if (device.starts_with("cuda") && dtype == DType::kBF16)
    return {{"attn", "cuda_invariant"},
            {"linear", "cublaslt_invariant"},
            {"lora_linear", "hopper_invariant"},
            {"paged_attention", "cuda"}};
  return {};
}

bool is_batch_invariant(const layers::Decoder& model) {
  return model.ops().at<ops::Linear>("head").batch_invariant;
}

}  // namespace temper::rollout
