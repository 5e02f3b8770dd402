#pragma once
#include <vector>

#include "collectives/group.h"
#include "data/rows/pack.h"
#include "layers/decoder.h"
#include "training/passes/router_loads.h"

namespace temper::calibration {

// Inputs that are rounded with an amax that calibration finds.
inline bool is_calibrated_input(const quantizers::Quantizer& each) {
  return each.planned.of_input && each.planned.keeps_amax();
}

struct Passed {
  int64_t tokens = 0;                            // of this rank
  std::vector<training::RouterLoad> loads = {};  // of all of `parts`
};

// Passes of these rows in which nothing is rounded, and `observer` is shown what passes
// (quantizers::Quantizers); an empty one: amax of inputs grow. All of `parts` call it, each with its own
// rows.
Passed pass_unrounded(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                      int64_t micro_batch_tokens, collectives::Group& parts,
                      quantizers::Quantizers::Observer observer = {});

}  // namespace temper::calibration
