#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace temper::rollout {

// Gets what an engine computes, as it computes it.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  // Tokens of a request's text: its number, as Engine::add gave it, and which of its tokens.
  struct Tokens {
    int64_t id = 0, first = 0, count = 0;
  };
  // A pass over these tokens, one after the other: the residual stream as of layers::Decoder::Options, and
  // what the final norm gives, [tokens, hidden].
  virtual void passed(std::span<const Tokens> parts, const std::vector<Tensor>& stream,
                      const Tensor& hidden) = 0;
  // The logits [rows, vocab] that follow these tokens, one of each request.
  virtual void predicted(std::span<const Tokens> rows, const Tensor& logits) = 0;
};

}  // namespace temper::rollout
