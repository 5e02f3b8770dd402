#pragma once
#include "ops/cross_entropy/cross_entropy.h"
#include "tensor/tensor.h"

namespace temper::losses {

// What is kept of a teacher's distributions: of each token's logits x the K largest, and of the others
// together log Σ exp((x - max x) / T) over the tokens that are not kept, which is very low where there are
// none. So the teacher's softmax(x / T) is known of K tokens, and the mass of all others as one number.
// Tensors on the CPU.
struct TopTokens {
  Tensor ids;  // [tokens, K] int32: from the largest logit to the smallest; of equal ones the lower id first
  Tensor logits;  // [tokens, K] float32
  Tensor rest;    // [tokens, 1] float32

  int64_t num_tokens() const { return ids.dim(0); }
  int64_t top_k() const { return ids.dim(1); }
  TopTokens narrow(int64_t start, int64_t length) const;
};

// Of logits [tokens, vocab]. Where ranks divide the vocabulary, logits are of this rank's part of it, and all
// ranks get the same: they exchange K numbers a token. An Error for a K that is not in [1, vocab].
TopTokens top_tokens(const Tensor& logits, int64_t top_k, double temperature,
                     const ops::VocabularyRanks& ranks = {});

}  // namespace temper::losses
