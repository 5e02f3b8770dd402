#pragma once
#include "ops/global_norm/global_norm.h"
#include "optimizers/trained_parameters.h"

namespace temper::optimizers {

// The norm of all gradients of the model, [1] float32, on the parameters' device. Of a sharded state all
// ranks call it.
Tensor gradient_norm(const TrainedParameters& trained, ops::Bound<ops::GlobalNorm> norm);

}  // namespace temper::optimizers
