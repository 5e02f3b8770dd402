#pragma once
#include <vector>

#include "autograd/tape.h"

namespace temper::layers {

// What the routers of one forward pass did, by RouterSet::add.
struct RouterTrace {
  // Of the tokens of one adapter, or of all (ops/moe_router).
  struct Part {
    Tensor counts;  // [experts + 1] int32
    Var sums;       // [experts + 1] float32
  };
  struct Router {
    // [tokens, top_k] int32: what it chose. Defined before the pass: what it uses instead of choosing, so
    // that what is computed again takes the same way.
    Tensor ids;
    std::vector<Part> parts;  // in the order of the pass's rows; only where `wanted`
  };
  std::vector<Router> routers;
  bool wanted = false;  // whether counts and sums are recorded
};

}  // namespace temper::layers
