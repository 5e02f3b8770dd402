#pragma once
#include "ops/selection.h"

namespace temper::ops {

// One more token for each of several sequences, for inference: one step of the gated delta rule
// (chunk_gated_delta_rule.h), which changes the sequences' states in place. All is float32; y is rounded
// once.
struct RecurrentGatedDeltaRule {
  static constexpr std::string_view kName = "recurrent_gated_delta_rule",
                                    kField = "recurrent_gated_delta_rule";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t key_heads = 0, heads = 0, key_dim = 0, value_dim = 0;
    bool norms = true;
  };

  Tensor q, k;     // [sequences, key_heads, key_dim]; sequences may have any stride
  Tensor v;        // [sequences, heads, value_dim]; sequences may have any stride
  Tensor g, beta;  // [sequences, heads] float32, compact
  Tensor state;    // [states, heads, key_dim, value_dim] float32, compact; those of the sequences are written
  float scale = 1;
  bool norms = true;
  float eps = 1e-6f;
  // [sequences] int32 on q's device: the state of each, which differ, but those of sequences whose results
  // nobody reads. Undefined: each has its own, in their order.
  Tensor slots = {};

  using Forward = Tensor(const RecurrentGatedDeltaRule&);  // [sequences, heads, value_dim], compact
  using Backward = void();                                 // there is none
  using Compose = Forward;
};

Tensor recurrent_gated_delta_rule(Bound<RecurrentGatedDeltaRule> bound, const RecurrentGatedDeltaRule& op);

}  // namespace temper::ops
