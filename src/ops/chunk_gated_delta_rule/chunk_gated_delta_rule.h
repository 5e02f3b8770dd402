#pragma once
#include <vector>

#include "ops/documents.h"
#include "ops/selection.h"

namespace temper::ops {

struct DeltaResult {
  Var y;            // [tokens, heads, value_dim]
  Var final_state;  // [documents, heads, key_dim, value_dim] float32; Var{} unless wanted
};

// The gated delta rule (Yang, Kautz and Hatamizadeh, 2024, arXiv:2412.06464) with grouped value heads. Of
// each document and value head h, with q and k of head h / (heads / key_heads), token by token:
//   q̂ = q / sqrt(Σ q² + eps)      k̂ = k / sqrt(Σ k² + eps)      (without norms q̂ = q, k̂ = k)
//   S_t = exp(g_t) S_{t-1} + k̂_t u_tᵀ      u_t = beta_t (v_t - exp(g_t) S_{t-1}ᵀ k̂_t)
//   y_t = scale · S_tᵀ q̂_t
// S [key_dim, value_dim] before the first token is the initial state, the final one of the document that it
// continues, or zero. Kernels may compute chunks of tokens at once by the WY form (arXiv:2406.06484): in a
// chunk, with D_ts = exp(Σ_{s<i≤t} g_i), e_t = exp(Σ_{i≤t} g_i), S the state before it and only s < t in A,
//   A_ts = beta_t D_ts k̂_t·k̂_s      U = (I + A)⁻¹ diag(beta) (V - diag(e) K̂ S)
//   Y = scale (diag(e) Q̂ S + (Q̂ K̂ᵀ ∘ D, s ≤ t) U)      S ← e_L S + (diag(D_L) K̂)ᵀ U
//
// Where values are rounded: q, k, v and y are of the dtype. g, beta, norms, decays, sums, the state and its
// gradient are float32 and are never rounded; y is rounded once. Kernels for 16 bits may round to the dtype
// what they multiply on matrix units (q̂, k̂, V - diag(e) K̂ S, U, (I + A)⁻¹, a copy of S), each once, and sum
// in float32. Sums have a fixed order: results repeat bit by bit.
struct ChunkGatedDeltaRule {
  static constexpr std::string_view kName = "chunk_gated_delta_rule", kField = "chunk_gated_delta_rule";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t key_heads = 0, heads = 0, key_dim = 0, value_dim = 0;  // heads: of values, of which key_heads
                                                                   // is a divisor
    bool norms = true;
  };

  Tensor q, k;     // [tokens, key_heads, key_dim]; tokens may have any stride
  Tensor v;        // [tokens, heads, value_dim]; tokens may have any stride
  Tensor g, beta;  // [tokens, heads] float32, compact; g ≤ 0. Checked on the CPU: finite
  Documents documents;
  // [documents, heads, key_dim, value_dim] float32, compact; of documents that continue another it is not
  // read. Undefined: zeros.
  Tensor initial = {};
  float scale = 1;    // usually 1 / sqrt(key_dim)
  bool norms = true;  // of q and k
  float eps = 1e-6f;  // of the norms
  int tiling = 0;     // of the kernel's, which selection took: set by the op

  int64_t tokens() const { return q.dim(0); }
  int64_t key_heads() const { return q.dim(1); }
  int64_t heads() const { return v.dim(1); }
  int64_t key_dim() const { return q.dim(2); }
  int64_t value_dim() const { return v.dim(2); }
  int64_t group() const { return heads() / key_heads(); }  // value heads of one key head
  Shape state_shape() const {
    return {documents.count(), heads(), key_dim(), value_dim()};
  }  // of all documents

  struct Output {
    Tensor y;            // [tokens, heads, value_dim], compact; undefined unless wanted
    Tensor final_state;  // [documents, heads, key_dim, value_dim] float32, compact; undefined unless wanted
    // Of any shape: what backward reads instead of computing it again, of the kernel's own making (states
    // before chunks, updates); empty unless wanted, and where a kernel keeps nothing. The bits are the same.
    std::vector<Tensor> kept;  // []
  };
  struct Wanted {
    bool final_state = false, kept = false, y = true;
  };
  enum class WantedGrads { kAll, kInitial };  // of all inputs, or of the initial states alone
  struct Grads {
    Tensor q, k;     // [tokens, key_heads, key_dim], q's dtype, compact
    Tensor v;        // [tokens, heads, value_dim], q's dtype, compact
    Tensor g, beta;  // [tokens, heads] float32, compact
    // [documents, heads, key_dim, value_dim] float32, zero where it is not read; undefined unless there is an
    // initial state or nothing else is wanted.
    Tensor initial;
  };
  using Forward = Output(const ChunkGatedDeltaRule&, Wanted wanted);
  // dy compact. dfinal of final_state's shape, float32, compact: undefined where no gradient arrived at it.
  using Backward = Grads(const ChunkGatedDeltaRule&, const std::vector<Tensor>& kept, const Tensor& dy,
                         const Tensor& dfinal, WantedGrads wanted);
  struct Inputs {
    Var q, k, v, g, beta;  // [tokens, …] each, as above
    Var initial;           // [documents, …], or Var{}
  };
  using Compose = DeltaResult(Tape&, const Inputs&, const ChunkGatedDeltaRule&, bool want_final);
};

// `op` carries everything but the inputs.
DeltaResult chunk_gated_delta_rule(Tape& tape, Bound<ChunkGatedDeltaRule> bound,
                                   const ChunkGatedDeltaRule::Inputs& inputs, ChunkGatedDeltaRule op,
                                   bool want_final = false);

// The rule is linear in the initial state: a final state is M S + E, where E is the final state that zeros
// give, and M that of values of zero. So ranks that have parts of a document can compute E and M at the same
// time, and then each its tokens. Neither is recorded on a tape.
//
// The final states alone: [documents, heads, key_dim, value_dim] float32. `op` with its tensors.
Tensor delta_final_states(Bound<ChunkGatedDeltaRule> bound, const ChunkGatedDeltaRule& op);
// The gradients of the initial states alone, of that shape, where y's is dy [tokens, heads, value_dim],
// compact, and the final states have none. They depend on neither v nor the initial states.
Tensor delta_initial_gradients(Bound<ChunkGatedDeltaRule> bound, const ChunkGatedDeltaRule& op,
                               const Tensor& dy);

}  // namespace temper::ops
