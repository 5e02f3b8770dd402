#pragma once
#include <functional>
#include <vector>

#include "losses/top_tokens.h"
#include "training/passes/micro_batch.h"

namespace temper::training {

// Some target tokens of a pass.
struct Targets {
  Tensor positions, ids;  // [n] int32, on the CPU
};

// Those of a pass whose targets are these ([tokens] int32), cut so that the logits of each part, which are
// there at once, are at most 16 million numbers: 64 MiB of float32.
std::vector<Targets> cut_targets(const Tensor& targets, int64_t vocab);

// What a model gives at these positions of a pass with these hidden states; where ranks divide the
// vocabulary, this rank's part of it. `rows`: the adapter that the pass is of.
Var logits_of(Tape& tape, const layers::Decoder& model, const Var& hidden, const Tensor& positions,
              layers::AdapterRows rows);

// What is known of the teacher's distributions at all target tokens of such rows, in their order.
class KnownTokens {
 public:
  virtual ~KnownTokens() = default;
  virtual losses::TopTokens of(std::span<const data::PackedRow> rows) const = 0;
};

// Of a model at all target tokens of the rows, in their order, some at a time; without rounding by its
// quantizers. Called as often on all ranks that compute every pass in step; of several stages, all of which
// call it, the last one knows them.
void read_top_tokens(const layers::Decoder& teacher, const std::vector<data::PackedRow>& rows, int64_t top_k,
                     double temperature, int64_t micro_batch_tokens,
                     const std::function<void(const losses::TopTokens& some)>& use);

}  // namespace temper::training
