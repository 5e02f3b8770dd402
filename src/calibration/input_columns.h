#pragma once
#include <map>
#include <vector>

#include "calibration/calibration.h"
#include "calibration/calibration_passes.h"

namespace temper::calibration {

// What passes showed of the inputs of one weight: of each column of the whole weight, and of each of its
// experts.
struct InputColumns {
  std::vector<float> largest;  // magnitudes; infinity where something was not finite
  std::vector<double> sums;    // of magnitudes
  std::vector<double> tokens;
};
using ColumnsOfInputs = std::map<const quantizers::Quantizer*, InputColumns>;  // by the weight's quantizer

// Of the inputs of all weights that have factors of columns, over all ranks, in passes that round nothing.
// All ranks call it, each of `parts` with its own rows. An Error "[quantize] …" names a module that no values
// passed, except experts, or values that are not finite.
ColumnsOfInputs columns_of_inputs(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                                  const CalibrationOptions& options, collectives::Group& parts,
                                  collectives::Group& ranks, Passed& passed);

// Each the largest of all ranks, NaN before all others.
void share_largest(std::vector<float>& values, collectives::Group& ranks);

}  // namespace temper::calibration
