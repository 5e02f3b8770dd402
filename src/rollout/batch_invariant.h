#pragma once
#include "layers/decoder.h"
#include "ops/ops_config.h"

namespace temper::rollout {

// Kernels by which a token's result does not depend on what is computed beside it; there are some for CPUs
// alone.
ops::FieldValues batch_invariant_fields();
// Whether a model's kernels are such: processors that cannot run them have others behind the same names.
bool is_batch_invariant(const layers::Decoder& model);

}  // namespace temper::rollout
