#pragma once
#include "ops/chunk_gated_delta_rule/delta_gates.h"

namespace temper::ops {

Outline<DeltaGates> delta_gates_outline();

}  // namespace temper::ops
