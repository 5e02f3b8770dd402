#pragma once
#include <cstdint>
#include <limits>

#include "ops/cross_entropy/cross_entropy.h"
#include "tensor/tensor.h"

namespace temper::losses {

// What numbers logits are: sums over all of them, of tokens of any passes and ranks. Plain, so that ranks
// send it as it is.
struct LogitStatistics {
  double sum = 0, squares = 0;
  double least = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  int64_t tokens = 0, vocabulary = 0;  // their shape: [tokens, vocabulary]

  bool empty() const { return tokens == 0; }
  void add(const LogitStatistics& other);  // of other tokens
  double mean() const;
  double deviation() const;  // of a sample, as torch.std has it; 0 of one number
};

// Of logits [tokens, vocabulary], or of this rank's part of the vocabulary: those of the whole then, on all
// of these ranks.
LogitStatistics statistics_of(const Tensor& logits, const ops::VocabularyRanks& ranks = {});

}  // namespace temper::losses
