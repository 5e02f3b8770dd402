#pragma once
#include "recipes/costs/machine.h"

namespace temper::recipes {

// Fills the machine's times of ops: trains small numbers of layers of typical models (a dense one, and a
// mixture with gated delta layers) on rows of several lengths, waits for each op, and puts together by name
// what its calls took. What a whole step takes, without the waiting, gives step_share. `machine` has the
// device and the dtype. Takes up to a minute.
void measure_ops(Machine& machine);

}  // namespace temper::recipes
