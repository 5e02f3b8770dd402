#pragma once
#include <string>

#include "layers/decoder.h"

namespace temper::cli {

// The kernels of --batch-invariant: a token's result does not depend on what is computed beside it. An Error
// on devices that have none.
ops::OpsConfig batch_invariant_kernels(const std::string& device);

// An Error where the model's kernels are none of them, because this processor cannot run those.
void check_batch_invariant(const layers::Decoder& model);

}  // namespace temper::cli
