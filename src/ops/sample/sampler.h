#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace temper::ops {

struct SamplingOptions {
  double temperature = 0;         // 0: greedy
  int64_t top_k = 0;              // keep the k most likely; 0: all
  double top_p = 1;               // keep the smallest set with at least this probability
  double repetition_penalty = 1;  // of tokens seen before (Keskar et al., 2019, arXiv:1909.05858)
  uint64_t seed = 0;
};

// In place of a token where the logits are no distribution: one is NaN, or the largest is infinite.
inline constexpr int32_t kNoToken = -1;

// Chooses the next token from logits [vocab]. The order is the ecosystem's: penalty, temperature, top-k,
// top-p. Greedy takes the lowest id among equals. A random number chooses among the tokens that stay by their
// probabilities one after the other: sorted by score, lowest id first among equals; in the order of their ids
// where neither top-k nor top-p leaves any out. Random numbers are keyed by (seed, position): the same
// arguments give the same token. kNoToken where there is none to choose.
int32_t sample(std::span<const float> logits, const SamplingOptions& options,
               std::span<const int32_t> history, uint64_t position);

}  // namespace temper::ops
