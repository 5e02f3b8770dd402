#pragma once
#include <functional>
#include <map>
#include <vector>

#include "calibration/calibration_passes.h"

// What roundings of weights change in the outputs of their modules, over passes that round nothing.
namespace temper::calibration {

// A matrix of one weight, or of one of its experts, as this rank has it.
struct RankMatrix {
  const quantizers::Quantizer* weight = nullptr;
  int64_t place = 0;  // of the expert among the rank's own; 0: the weight is one matrix
  Tensor values;      // [rows, columns] float32, on the model's device
};

RankMatrix rank_matrix(const quantizers::Quantizer& weight, int64_t place,
                       const Tensor& value);  // of all that the rank has

// What weights may be rounded to.
struct Candidates {
  std::vector<const quantizers::Quantizer*> weights;
  int64_t count = 0;
  // What `values` become by candidate k, [rows, columns] float32.
  std::function<Tensor(const RankMatrix&, int64_t k)> rounded;
};

// Of each weight, and each of its experts in the whole model, Σ (x (rounded - values)ᵀ)² over all outputs and
// all tokens of all ranks: [experts · count]. All ranks call it, each of `parts` with its own rows.
std::map<const quantizers::Quantizer*, std::vector<double>> output_errors(
    layers::Decoder& model, const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens,
    const Candidates& candidates, collectives::Group& parts, collectives::Group& ranks);

}  // namespace temper::calibration
