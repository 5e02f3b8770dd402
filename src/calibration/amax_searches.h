#pragma once
#include "calibration/calibration.h"

// Searches that begin with the largest magnitudes of all ranks, which every amax is. They run on the host:
// weights and inputs of a GPU are copied there, one at a time.
namespace temper::calibration {

// Of weights, by kMse and kPercentile.
void search_weights(layers::Decoder& model, const CalibrationOptions& options, collectives::Group& ranks);
// Of inputs, by kMse, kPercentile and kEntropy, in passes of these rows.
void search_inputs(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                   const CalibrationOptions& options, collectives::Group& parts, collectives::Group& ranks);

}  // namespace temper::calibration
