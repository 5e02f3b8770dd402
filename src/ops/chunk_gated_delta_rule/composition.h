#pragma once
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"

namespace temper::ops {

inline constexpr int64_t kDeltaChunk = 64;

ChunkGatedDeltaRule::Compose compose_chunk_gated_delta_rule;
RecurrentGatedDeltaRule::Compose compose_recurrent_gated_delta_rule;
DeltaGates::Compose compose_delta_gates;

// The composition with chunks of this number of tokens: with 1 it is the recurrence.
DeltaResult compose_delta_chunks(Tape& tape, const ChunkGatedDeltaRule::Inputs& inputs,
                                 const ChunkGatedDeltaRule& op, bool want_final, int64_t chunk);

// Of a document's tokens that follow one another, all float32: q and k normed, each of its value head.
struct DeltaChunk {
  Var q, k;     // [heads, tokens, key_dim]
  Var v;        // [heads, tokens, value_dim]
  Var g, beta;  // [heads, tokens]
};
struct DeltaStep {
  Var y;      // [heads, tokens, value_dim]
  Var state;  // [heads, key_dim, value_dim], behind them
};
DeltaStep compose_delta_chunk(Tape& tape, const DeltaChunk& chunk, const Var& state, float scale);

}  // namespace temper::ops
