#pragma once
#include <string>
#include <vector>

#include "collectives/local/local.h"
#include "data/pack.h"
#include "layers/decoder.h"

namespace temper::training {

struct Calibration {
  int64_t inputs = 0, weights = 0;  // quantizers that got an amax
  int64_t tokens = 0;               // that passed to find those of inputs; 0: no input needs it
  // "layers.1.mlp: experts 3, 5", of layers whose experts are quantized. The amax of an expert is that of its
  // weights, whether it had tokens or not.
  std::vector<std::string> idle_experts;
};

// Whether the amax of some input must be found by passes.
bool needs_rows(const layers::Quantizers& quantizers);

// Calibrates by the largest magnitude ("max"): weights as they are now, and inputs over passes of these rows
// in which nothing is rounded. The model's quantizers round from then on. An Error "[quantize] …" names a
// weight or an input with values that are not finite.
// Of several ranks with replicas of the model each has its part of the rows.
Calibration calibrate(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                      int64_t micro_batch_tokens, collectives::Group& ranks = collectives::alone());

}  // namespace temper::training
