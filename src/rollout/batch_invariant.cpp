#include "rollout/batch_invariant.h"

#include "ops/linear/linear.h"

namespace temper::rollout {

ops::FieldValues batch_invariant_fields() {
  return {{"linear", "onednn_invariant"},
          {"lora_linear", "onednn_invariant"},
          {"paged_attention", "onednn_invariant"}};
}

bool is_batch_invariant(const layers::Decoder& model) {
  return model.ops().at<ops::Linear>("head").batch_invariant;
}

}  // namespace temper::rollout
