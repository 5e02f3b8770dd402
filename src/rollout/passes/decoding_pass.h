#pragma once
#include <memory>
#include <span>

#include "device/transfer.h"
#include "layers/decoder.h"
#include "ops/sample/sample.h"
#include "ops/token_log_probs/token_log_probs.h"
#include "tensor/repeated_work.h"

namespace temper::rollout {

// What passes in which sequences get one token each have in common.
struct DecodingSetup {
  const layers::Decoder& model;
  const layers::PagedStates& states;
  int32_t spare_page, spare_slot;  // of no sequence: rows without one write there
  Tensor ids;   // [rows or more] int32 on the device: what a pass computes, then what it chose
  Tensor seen;  // [rows or more, vocab] uint8 on the device: tokens of the rows that have a penalty
  std::shared_ptr<Arena> arena;  // they run one after the other
};

// A pass of the model in which each of up to `rows` sequences gets one token, and the choice of what follows,
// on the model's device: on a GPU one captured graph (tensor/repeated_work.h), which stays the same while
// sequences come and go.
class DecodingPass {
 public:
  struct Shape {
    int64_t rows, width;                       // sequences, and pages that each may have
    const layers::Adapter* adapter = nullptr;  // of all of them; null: the model alone
    double log_prob_temperature = 1;           // 0: without log-probabilities

    auto operator<=>(const Shape&) const = default;
  };
  struct Row {
    int32_t held = 0;
    std::span<const int32_t> pages = {};  // none: a row without a sequence
    int32_t slot = 0;
    ops::SamplingOptions sampling = {};
    std::span<const int32_t> tokens = {};  // of the sequence, with the one that the pass computes
  };
  // What a pass chose, row by row.
  class Chosen {
   public:
    Chosen(std::shared_ptr<Reading> reading, int64_t rows) : reading_(std::move(reading)), rows_(rows) {}
    std::span<const int32_t> ids() const;      // ops::kNoToken where there is none to choose
    std::span<const float> log_probs() const;  // of these, at the shape's temperature; 0 where that is 0
    std::span<const float> kept() const;       // ops::NextToken::kept

   private:
    std::span<const float> floats(int64_t first) const;

    std::shared_ptr<Reading> reading_;
    int64_t rows_;
  };

  DecodingPass(const DecodingSetup& setup, const Shape& shape);
  DecodingPass(const DecodingPass&) = delete;
  DecodingPass& operator=(const DecodingPass&) = delete;

  const Shape& shape() const { return shape_; }
  // Asks the device for the pass. At least one row, at most the shape's; `ids`: what each computes, or
  // nothing where that is what the pass before chose for the same rows. Then their tokens are not read.
  Chosen run(std::span<const Row> rows, std::span<const int32_t> ids);

 private:
  void compute() const;
  void begin(std::span<const Row> rows, std::span<const int32_t> ids) const;

  const DecodingSetup setup_;
  const Shape shape_;
  ops::Bound<ops::Sample> sample_;
  ops::Bound<ops::TokenLogProbs> log_probs_;
  layers::BatchInput input_;  // written before each run
  Tensor options_;            // [rows, sizeof(SamplingOptions)] bytes, on the CPU
  Tensor results_;            // bytes on the device: [rows] int32, two [rows] float32
  RepeatedWork work_;
};

// How many rows a pass for this number of sequences has: few numbers, so that few graphs are captured.
int64_t rows_of_pass(int64_t sequences);

}  // namespace temper::rollout
