#pragma once
#include "layers/decoder.h"

namespace temper::training {

// Replaces the weights of a frozen model by what its quantizers make of them, once, so that passes read them
// as they are: each pass of an adapter then costs what it costs on a plain base. The quantizers have every
// amax. Of several ranks all that hold something of the model call this.
void round_weights(layers::Decoder& model);

}  // namespace temper::training
