#pragma once
#include "layers/decoder.h"
#include "ops/ops_config.h"

namespace temper::rollout {

// Kernels by which a token's result does not depend on other tokens of the pass, and is that of training:
// float32 on "cpu", bfloat16 on "cuda" or "cuda:1". Empty: there are none.
ops::FieldValues batch_invariant_fields(std::string_view device, DType dtype);
// Whether a model's kernels are such: processors that cannot run them have others behind the same names.
bool is_batch_invariant(const layers::Decoder& model);

}  // namespace temper::rollout
