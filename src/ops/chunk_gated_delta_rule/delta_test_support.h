#pragma once
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "tests/support/op_testing.h"

namespace temper::ops {

// A row of documents for tests of the gated delta rule.
struct DeltaSetup {
  std::vector<int32_t> lengths;
  int64_t key_heads = 1, heads = 2, key_dim = 8, value_dim = 8;
  std::vector<int32_t> continued = {};
  bool initial = false, fused = false, norms = true;
  std::vector<double> decays = {};  // log decays that follow one another over and over; empty: of all kinds
  float scale = 0.5f;
  float eps = 1e-6f;

  int64_t documents() const { return std::ssize(lengths); }
  int64_t tokens() const;
  ChunkGatedDeltaRule op() const;
  ChunkGatedDeltaRule::Signature signature(DType dtype = DType::kF32) const {
    return {dtype, key_heads, heads, key_dim, value_dim, norms};
  }
};

// q, k, v, g, beta and the initial states, where there are any.
std::vector<op_testing::Input> delta_inputs(const DeltaSetup& setup);

// The recurrence in double: y, then the final states.
op_testing::Doubles delta_reference(const DeltaSetup& setup, const std::vector<op_testing::Doubles>& inputs);

}  // namespace temper::ops
