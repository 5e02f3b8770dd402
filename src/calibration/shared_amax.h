#pragma once
#include "collectives/group.h"
#include "quantizers/quantizers.h"

namespace temper::calibration {

// Of ranks that divide a model: what each found becomes the largest of all that have values of the same
// matrix, channel, block or input, and Quantizer::whole is set. Experts have their own. Stages of a pipeline
// learn what the others found. All ranks call it.
void share_amax(quantizers::Quantizers& quantizers, collectives::Group& ranks);

}  // namespace temper::calibration
