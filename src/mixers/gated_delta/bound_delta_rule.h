#pragma once
#include "layers/binding.h"
#include "mixers/gated_delta/gated_delta.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"

namespace temper::mixers {

// The gated delta rule with a model's kernels: over documents by chunks or token by token, and one more token
// of sequences.
class BoundDeltaRule {
 public:
  // `invariant`: whether the linears before it give a token the same bits whatever is next to it.
  BoundDeltaRule(const GatedDeltaConfig& config, const layers::Binding& binding, bool invariant);

  // Where nothing is recorded, final states may take the place of the initial ones.
  ops::DeltaResult operator()(Tape& tape, const ops::ChunkGatedDeltaRule::Inputs& in,
                              const ops::Documents& documents, bool want_final) const;
  // y [sequences, heads, value_dim]. `states` move on; `slots`: which are those of the sequences.
  Tensor step(const ops::ChunkGatedDeltaRule::Inputs& in, const Tensor& states, const Tensor& slots) const;

  bool by_steps() const { return by_steps_; }
  bool steps_repeat() const { return step_->repeats; }
  ops::Bound<ops::ChunkGatedDeltaRule> chunks() const { return chunks_; }
  ops::ChunkGatedDeltaRule op(const ops::Documents& documents) const;  // with what is no tensor of tokens

 private:
  ops::RecurrentGatedDeltaRule step_op(const ops::ChunkGatedDeltaRule::Inputs& in,
                                       const Tensor& states) const;

  ops::Bound<ops::ChunkGatedDeltaRule> chunks_;
  ops::Bound<ops::RecurrentGatedDeltaRule> step_;
  int64_t key_dim_, value_dim_;
  float scale_;
  // Where linears give a token the same bits whatever is next to it, the rule does, too: prompts and rows of
  // training are computed token by token, as in decoding. Their gradient is that of chunks.
  bool by_steps_;
};

}  // namespace temper::mixers
