#pragma once
#include "collectives/group.h"
#include "layers/quantizers.h"

namespace temper::training {

// Of ranks that divide a model: what each found becomes the largest of all that have values of the same
// matrix, channel, block or input, and Quantizer::whole is set. Experts have their own. All ranks call it.
void share_amax(layers::Quantizers& quantizers, collectives::Group& ranks);

}  // namespace temper::training
