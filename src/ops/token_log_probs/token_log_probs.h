#pragma once
#include "ops/selection.h"

namespace temper::ops {

// log softmax(logits / temperature) at ids, over the whole vocabulary, whatever part of it was sampled from,
// and the entropy -Σ p log p of each row's distribution in nats. All is float32. Rollouts and training both
// compute log-probabilities by it, so that equal logits give equal bits.
//
// With x = logits / temperature, p = softmax(x) and H the entropy, the gradient of x is
// d_log_probs (1{id} - p) - d_entropies p (log p + H).
struct TokenLogProbs {
  static constexpr std::string_view kName = "token_log_probs", kField = "token_log_probs";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t vocab = 0;
  };

  Tensor logits;  // [tokens, vocab], compact
  Tensor ids;     // [tokens] int32 in the vocabulary, on the device of the logits
  double temperature = 1;
  enum class Entropies : uint8_t { kNone, kValues, kTrained };  // kTrained: gradients flow through them
  Entropies entropies_wanted = Entropies::kNone;

  struct Output {
    Tensor log_probs, entropies;  // [tokens] float32; entropies undefined unless requested
    Tensor log_sums;              // [tokens] float32: log Σ exp(x), for backward
  };
  using Forward = Output(const TokenLogProbs&);
  // d_log_probs, d_entropies [tokens] float32, of which one may be undefined: zero. Returns dlogits.
  using Backward = Tensor(const TokenLogProbs&, const Output&, const Tensor& d_log_probs,
                          const Tensor& d_entropies);

  struct Vars {
    Var log_probs, entropies;  // [tokens] float32; entropies Var{} unless requested
  };
  using Compose = Vars(Tape&, const Var& logits, const TokenLogProbs&);
};

TokenLogProbs::Vars token_log_probs(Tape& tape, Bound<TokenLogProbs> bound, const Var& logits,
                                    const Tensor& ids, double temperature = 1,
                                    TokenLogProbs::Entropies entropies = TokenLogProbs::Entropies::kNone);

}  // namespace temper::ops
