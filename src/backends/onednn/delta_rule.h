#pragma once
#include <vector>

#include "backends/onednn/attention/attention.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"

// What both directions of the gated delta rule share. A task has the documents of one prefix and one key
// head; it walks over chunks of tokens, and for each over the value heads of the key head. Everything is
// float32. The letters are those of ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h.
namespace temper::backends {

constexpr int64_t kDeltaChunks[] = {64, 32, 16};  // tokens of a chunk, by tiling
constexpr int64_t kDeltaStride =
    kDeltaChunks[0] + 16;  // of [chunk, chunk]: rows of a power of two share cache sets
inline int64_t delta_chunk(const ops::ChunkGatedDeltaRule& op) { return kDeltaChunks[op.tiling]; }

// A document that continues none, then those that continue it.
using DeltaFamily = std::vector<int64_t>;
std::vector<DeltaFamily> delta_families(const ops::Documents& documents);

// Of a chunk, for all value heads of a key head.
struct KeyChunk {
  int64_t first = 0, size = 0;  // tokens
  float *q, *k;                 // [size, key_dim], normed
  float *q_scale, *k_scale;     // [size], of the norms
  float *kk, *qk;               // [size, size]: k̂_t·k̂_s and q̂_t·k̂_s
};
// Of a chunk and a value head.
struct ValueChunk {
  float* v;      // [size, value_dim]
  float* decay;  // [size, size]: D_ts for s ≤ t
  float* start;  // [size]: e_t
  float* known;  // [size, value_dim]: K̂ S
  float* u;      // [size, value_dim]
  float* n;      // [size, size]: -A_ts for s < t
  float* kept;   // [size, key_dim]: diag(D_L) K̂
};

class DeltaChunks {
 public:
  static int64_t floats(int64_t key_dim, int64_t value_dim, int64_t chunk);
  static int64_t floats(const ops::ChunkGatedDeltaRule& op) {
    return floats(op.key_dim(), op.value_dim(), delta_chunk(op));
  }
  DeltaChunks(const ops::ChunkGatedDeltaRule& op, Scratch& scratch);

  void load_keys(int64_t key_head, int64_t first, int64_t size);
  // Of the values what depends on no state: decays, N, and the keys that are kept.
  void load_transition(int64_t head);
  // That, what the state knows, and the updates; `state` [key_dim, value_dim] is that before the chunk.
  void load_values(int64_t head, const float* state);
  void advance(float* state) const;  // behind the chunk

  const KeyChunk& keys() const { return keys_; }
  const ValueChunk& values() const { return values_; }
  float beta(int64_t head, int64_t t) const {
    return op_.beta.data<float>()[(keys_.first + t) * op_.heads() + head];
  }
  // (D ∘ Q̂K̂ᵀ)_ts for s ≤ t, else 0, [size, size].
  void mix(float* p) const;

 private:
  void load_decays(int64_t head);

  const ops::ChunkGatedDeltaRule& op_;
  KeyChunk keys_;
  ValueChunk values_;
};

// c [m, n] (+)= a b, all float32.
struct Operand {
  const float* data;
  int64_t stride;
  bool transposed = false;
};
struct ProductSizes {
  int64_t m, n, k;
};
void delta_product(const Operand& a, const Operand& b, const ProductSizes& sizes, float* c, int64_t stride,
                   bool accumulate = false);

ops::ChunkGatedDeltaRule::Grads delta_rule_backward(const ops::ChunkGatedDeltaRule& op,
                                                    const std::vector<Tensor>& kept, const Tensor& dy,
                                                    const Tensor& dfinal,
                                                    ops::ChunkGatedDeltaRule::WantedGrads wanted);
ops::ChunkGatedDeltaRule::Grads outline_delta_rule_backward(const ops::ChunkGatedDeltaRule& op,
                                                            const std::vector<Tensor>& kept, const Tensor& dy,
                                                            const Tensor& dfinal,
                                                            ops::ChunkGatedDeltaRule::WantedGrads wanted);

}  // namespace temper::backends
