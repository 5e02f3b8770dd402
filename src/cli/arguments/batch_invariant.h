#pragma once
#include <string>

#include "cli/arguments/sampling.h"

namespace temper::cli {

// The model with the kernels of --batch-invariant: a token's result does not depend on the rest of the batch.
// An Error where there are none: on other devices and processors, and in other dtypes.
std::unique_ptr<models::Model> load_batch_invariant(const std::string& folder,
                                                    const SamplingArguments& arguments,
                                                    const quantizers::QuantizeOptions& quantize = {});

}  // namespace temper::cli
