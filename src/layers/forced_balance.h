#pragma once
#include "ops/moe_router/moe_router.h"

namespace temper::layers {

// Of each token the experts that follow those of the token before it, for RouterOptions::balanced: choice j
// of token t is the expert (t · top_k + j) mod experts. [tokens, top_k] int32; captured work keeps it.
Tensor experts_in_turn(const ops::Routing& routing, int64_t tokens, Device device);

}  // namespace temper::layers
