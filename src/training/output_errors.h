#pragma once
#include <functional>
#include <map>
#include <vector>

#include "training/calibration_passes.h"

// What roundings of weights change in the outputs of their modules, over passes that round nothing.
namespace temper::training {

// A matrix of one weight, or of one of its experts, as this rank has it.
struct RankMatrix {
  const layers::Quantizer* weight = nullptr;
  int64_t place = 0;  // of the expert among the rank's own; 0: the weight is one matrix
  Tensor values;      // [rows, columns] float32, on the model's device
};

RankMatrix rank_matrix(const layers::Quantizer& weight, int64_t place,
                       const Tensor& value);  // of all that the rank has

// What weights may be rounded to.
struct Candidates {
  std::vector<const layers::Quantizer*> weights;
  int64_t count = 0;
  // What `values` become by candidate k, [rows, columns] float32.
  std::function<Tensor(const RankMatrix&, int64_t k)> rounded;
};

// Of each weight, and each of its experts in the whole model, Σ (x (rounded - values)ᵀ)² over all outputs and
// all tokens of all ranks: [experts · count]. All ranks call it, each of `parts` with its own rows.
std::map<const layers::Quantizer*, std::vector<double>> output_errors(
    layers::Decoder& model, const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens,
    const Candidates& candidates, collectives::Group& parts, collectives::Group& ranks);

}  // namespace temper::training
