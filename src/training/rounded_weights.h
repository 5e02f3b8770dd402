#pragma once
#include "layers/decoder.h"

namespace temper::training {

// Replaces the weights of a frozen model by what its quantizers make of them, once, so that passes read them
// as they are: each pass of an adapter then costs what it costs on a plain base. The quantizers have every
// amax. Of several ranks all that hold something of the model call this.
void round_weights(layers::Decoder& model);

// The rank's parts of all parameters (ParameterStore::placed), of weights with quantizers what these make of
// them: what passes compute with. The weights themselves stay as they are. What was rounded lies in the CPU's
// memory. Ranks as above.
std::vector<PlacedTensor> rounded_parameters(layers::Decoder& model);

}  // namespace temper::training
