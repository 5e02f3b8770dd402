#pragma once
#include "calibration/calibration.h"

// Smaller amax of weights by AWQ (Lin et al., 2024), by what outputs of modules lose.
namespace temper::calibration {

// What an amax is multiplied by: 0.5, 0.55 … 1.
inline constexpr int64_t kNumClips = 11;
float clip_ratio(int64_t which);

// Σ over tokens of (Σ_c change[c] · x[c])², where gram [columns, columns] is Σ x xᵀ.
double quadratic(std::span<const float> change, std::span<const float> gram);

// Each amax of a weight in blocks becomes the multiple with which its block's part of the outputs changes
// least over all tokens, the first of equals; where blocks find their own scales, that of the whole by the
// outputs themselves. Each begins with the largest magnitude of all ranks. All ranks call it, each of `parts`
// with its own rows.
void clip_weights(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                  const CalibrationOptions& options, collectives::Group& parts, collectives::Group& ranks);

}  // namespace temper::calibration
