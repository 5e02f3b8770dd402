#pragma once
#include <string>
#include <vector>

#include "collectives/local/local.h"
#include "data/rows/pack.h"
#include "layers/decoder.h"

namespace temper::calibration {

struct CalibrationOptions {
  quantizers::CalibrationMethod method = quantizers::CalibrationMethod::kMax;
  double percentile = 99.99;  // of kPercentile
  double alpha = 1;  // of kSmoothQuant: how much of the outliers of inputs goes to the weights, 0 to 1
  int64_t micro_batch_tokens = 0;
};

// By AWQ for a weight, or an expert of it (awq.h).
struct ChosenAlpha {
  std::string module;
  int64_t expert = -1;  // -1: it is no weight of experts
  float alpha = 0;
};

struct Calibration {
  int64_t inputs = 0, weights = 0;  // quantizers that got an amax
  int64_t tokens = 0;               // that passed to find those of inputs; 0: no input needs it
  // "layers.1.mlp: experts 3, 5", of layers whose experts are quantized. The amax of an expert is that of its
  // weights, whether it had tokens or not.
  std::vector<std::string> idle_experts;
  std::vector<ChosenAlpha> alphas;
};

// Whether inputs must pass to find what `method` looks for.
bool needs_rows(const quantizers::Quantizers& quantizers);

// Calibrates weights as they are now, and inputs over passes of these rows in which nothing is rounded. The
// model's quantizers round from then on. Every method begins with the largest magnitudes:
//   kMax         which stay; with zero points the largest and the least values, as by kMse and kPercentile,
//   which
//                search for both ends then; the others are not for them
//   kMse         of weights the multiple with the least squared error (quant/amax_search.h), of inputs the
//                amax with the least error of their histogram (quant/histogram.h)
//   kPercentile  where the percentile of the magnitudes is, of weights and inputs
//   kEntropy     of inputs in integers the amax with the least divergence; weights keep the largest
//   kSmoothQuant, kAwqLite
//                find factors of columns first (column_scales.h); amax are then the largest
//                magnitudes of what they multiply
// Formats with blocks of their own keep the largest magnitude, except weights with kMse. An Error
// "[quantize] …" names a weight or an input with values that are not finite.
// Of several ranks with replicas of the model each of `parts` has its own rows; all `ranks` that hold
// something of the model call this, and end with one and the same amax of whatever shares one. Sums are of
// all ranks and histograms have the range of all, whatever the micro-batches.
Calibration calibrate(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                      const CalibrationOptions& options = {},
                      collectives::Group& parts = collectives::alone(),
                      collectives::Group& ranks = collectives::alone());

}  // namespace temper::calibration
