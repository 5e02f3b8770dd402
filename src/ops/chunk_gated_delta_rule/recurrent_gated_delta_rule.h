#pragma once
#include "ops/documents.h"
#include "ops/selection.h"

namespace temper::ops {

// One more token for each of several sequences, for inference: one step of the gated delta rule
// (chunk_gated_delta_rule.h), which changes the sequences' states in place. All is float32; y is rounded
// once. Or several tokens of each, by as many steps and with their bits.
struct RecurrentGatedDeltaRule {
  static constexpr std::string_view kName = "recurrent_gated_delta_rule",
                                    kField = "recurrent_gated_delta_rule";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t key_heads = 0, heads = 0, key_dim = 0, value_dim = 0;
    bool norms = true;
  };

  Tensor q, k;     // [tokens, key_heads, key_dim]; tokens may have any stride
  Tensor v;        // [tokens, heads, value_dim]; tokens may have any stride
  Tensor g, beta;  // [tokens, heads] float32, compact
  Tensor state;    // [states, heads, key_dim, value_dim] float32, compact; those of the sequences are written
  float scale = 1;
  bool norms = true;
  float eps = 1e-6f;
  // [sequences] int32 on q's device: the state of each, which differ, but those of sequences whose results
  // no sequence reads. Undefined: each has its own, in their order.
  Tensor slots = {};
  // The tokens of each sequence, without slots. A sequence that continues another begins with that one's
  // final state. Undefined: each has one.
  Documents documents = {};

  bool by_documents() const { return documents.starts.defined(); }
  int64_t sequences() const { return by_documents() ? documents.count() : q.dim(0); }

  using Forward = Tensor(const RecurrentGatedDeltaRule&);  // [tokens, heads, value_dim], compact
  using Backward = void();                                 // there is none
  using Compose = Forward;
};

Tensor recurrent_gated_delta_rule(Bound<RecurrentGatedDeltaRule> bound, const RecurrentGatedDeltaRule& op);

}  // namespace temper::ops
