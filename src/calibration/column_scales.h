#pragma once
#include <span>
#include <vector>

#include "calibration/input_columns.h"

// Factors of the columns of weights and inputs (quantizers::ColumnScales), found in passes that round
// nothing.
namespace temper::calibration {

// pre_quant_scale of each column by SmoothQuant (Xiao et al., "SmoothQuant: Accurate and Efficient
// Post-Training Quantization for Large Language Models", 2023): weight^(1 - alpha) / input^alpha of the
// largest magnitudes, between 1e-4 and 1e4; 1 where no input was larger than 2^-31.
std::vector<float> smoothquant_scales(std::span<const float> inputs, std::span<const float> weights,
                                      double alpha);

// To what the model's dtype has: files have them so, and passes compute with what files have.
void round_to(std::span<float> values, DType dtype);
void set_scales(const quantizers::Quantizer& weight, std::span<const float> scales);  // of all of it

struct FoundScales {
  Passed passed = {};
  std::vector<ChosenAlpha> alphas = {};  // of AWQ
};

// Finds and sets the factors of all weights that have some. All ranks call it, each of `parts` with its own
// rows. An Error "[quantize] …" names a module that no values passed, or values that are not finite.
FoundScales find_column_scales(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                               const CalibrationOptions& options, collectives::Group& parts,
                               collectives::Group& ranks);

}  // namespace temper::calibration
