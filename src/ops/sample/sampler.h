#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace temper::ops {

struct SamplingOptions {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // keep the k most likely; 0: all
  double top_p = 1;        // keep the smallest set with at least this probability
  double min_p = 0;  // keep those at least this times as likely as the likeliest (arXiv:2407.01082); 0: all
  double repetition_penalty = 1;  // of tokens seen before (Keskar et al., 2019, arXiv:1909.05858)
  uint64_t seed = 0;

  // Whether tokens may be left out that have a probability.
  bool truncates() const { return temperature > 0 && (top_k > 0 || top_p < 1 || min_p > 0); }
};

// In place of a token where the logits are no distribution: one is NaN, or the largest is infinite.
inline constexpr int32_t kNoToken = -1;

struct NextToken {
  int32_t id = kNoToken;
  // The natural logarithm of the probability that all tokens which stay have together, of the distribution
  // they are cut from (after penalty and temperature). The token's log-probability in that distribution, less
  // this, is its log-probability among those that stay. 0 where nothing is left out, where there is no
  // temperature, and with kNoToken.
  double kept = 0;
};

// Chooses the next token from logits [vocab]. The order is that of transformers: penalty, temperature, top-k,
// top-p, min-p. Probabilities of top-p are among the tokens that top-k kept; min-p compares each token with
// the likeliest one, so it is the same wherever it is applied. Greedy takes the lowest id among equals. A
// random number chooses among the tokens that stay by their probabilities one after the other: sorted by
// score, lowest id first among equals; in the order of their ids where no setting may leave any out. Random
// numbers are keyed by (seed, position): the same arguments give the same token. kNoToken where there is none
// to choose.
NextToken sample(std::span<const float> logits, const SamplingOptions& options,
                 std::span<const int32_t> history, uint64_t position);

}  // namespace temper::ops
