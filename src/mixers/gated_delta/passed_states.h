#pragma once
#include <functional>

#include "layers/context_pass.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"

namespace temper::mixers {

// What context ranks pass on of documents that several of them have tokens of, where each computes its own
// tokens. The convolution needs the tokens before the first one; the rule needs a state. Gradients come back.

struct WindowedTokens {
  Var x;        // [own tokens, channels], as given
  Var windows;  // [own pieces of documents, width - 1, channels]: what is before each, or zeros
};
WindowedTokens entering_windows(Tape& tape, const Var& x, int64_t width, const layers::ContextPass& context);

// The rule over documents, with the initial states of `inputs`.
using DeltaRule = std::function<ops::DeltaResult(const ops::ChunkGatedDeltaRule::Inputs& inputs,
                                                 const ops::Documents& documents, bool want_final)>;

// y [own tokens, heads, value_dim]. A span of tokens makes M S + E of a state S. So each rank first computes
// E of its spans, starting from zeros, and M where a document goes through one; all ranks read all of them
// and know the states that enter their spans, from which `rule` computes y. Backward the same in reverse: the
// gradient of the state behind a span is Mᵀ that behind the next span plus what y of that span gives, which
// is computed first. (Known as context parallelism of linear attention; each rank sends one or two states of
// a document, however long it is.) E, M and their sums are float32.
//
// `inputs`: of the rank's tokens, without initial states; `op`: with what is no tensor; `bound`: the kernel
// that `rule` uses.
Var pass_states(Tape& tape, const ops::ChunkGatedDeltaRule::Inputs& inputs,
                const ops::ChunkGatedDeltaRule& op, ops::Bound<ops::ChunkGatedDeltaRule> bound,
                const layers::ContextPass& context, const DeltaRule& rule);

}  // namespace temper::mixers
