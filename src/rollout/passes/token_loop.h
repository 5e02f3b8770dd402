#pragma once
#include "device/transfer.h"
#include "layers/decoder.h"
#include "ops/sample/sample.h"
#include "tensor/reading.h"
#include "tensor/repeated_work.h"

namespace temper::rollout {

// Chooses tokens of one sequence and computes them, everything on the model's device: ids, positions,
// settings and tokens seen stay there, each step leaves them ready for the next. On a GPU a step is one
// captured graph (tensor/repeated_work.h); it stays right as long as the state has the same places, so that
// it is made again when the state grows. Ranks that compute the model together call the same functions. The
// model and the state must outlive it.
class TokenLoop {
 public:
  TokenLoop(const layers::Decoder& model, layers::SequenceState& state,
            const layers::Adapter* adapter = nullptr);

  // A new text: `history` is all of it so far; the logits of its last token go to choose().
  void start(std::span<const int32_t> history, const ops::SamplingOptions& options);
  void choose(const Tensor& logits);  // the next token, from logits [1, vocab]
  void step();                        // computes the chosen token, and chooses the next
  // The token that was chosen last, or ops::kNoToken, when it arrives: later steps do not change it.
  std::shared_ptr<Reading> read() const { return start_reading(chosen_); }

 private:
  const layers::Decoder& model_;
  layers::SequenceState& state_;
  const layers::Adapter* adapter_;
  const int64_t capacity_;
  const std::vector<layers::RopeTables> rope_;
  ops::Bound<ops::Sample> sample_;
  Tensor ids_, chosen_, positions_;  // [1] int32
  Tensor kept_;                      // [1] float32
  Tensor options_, seen_;            // [1, sizeof(SamplingOptions)] and [1, vocab] bytes
  RepeatedWork work_;
};

}  // namespace temper::rollout
