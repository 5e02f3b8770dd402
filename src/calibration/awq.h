#pragma once
#include <span>
#include <vector>

#include "calibration/input_columns.h"

// Factors of columns by AWQ (Lin et al., "AWQ: Activation-aware Weight Quantization for On-Device LLM
// Compression and Acceleration", 2024).
namespace temper::calibration {

// What inputs and weights weigh in the factors: 0, 0.1 … 1, as float32.
inline constexpr int64_t kNumAlphas = 11;
float awq_alpha(int64_t which);

// What the columns of a weight are multiplied by: input^alpha / weight^(1 - alpha) between 1e-4 and 1e4,
// divided by the root of the product of the largest and the least. `inputs`: mean magnitudes; `weights`:
// means over the rows of magnitudes, each divided by the largest of its block.
std::vector<float> awq_factors(std::span<const float> inputs, std::span<const float> weights, float alpha);

// Sets the factors of every weight that has some, each expert's by itself, by the alpha with the least error
// of the module's outputs, the first of equals; 1 for experts that `inputs` has no tokens of. All ranks call
// it.
std::vector<ChosenAlpha> search_alphas(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                                       const CalibrationOptions& options, const ColumnsOfInputs& inputs,
                                       collectives::Group& parts, collectives::Group& ranks);

}  // namespace temper::calibration
