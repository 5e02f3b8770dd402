#include "cli/batch_invariant.h"

#include "base/error.h"
#include "rollout/batch_invariant.h"

namespace temper::cli {

std::unique_ptr<models::Model> load_batch_invariant(const std::string& folder,
                                                    const SamplingArguments& arguments) {
  if (arguments.device != "cpu")
    fail("[--batch-invariant] kernels for it are there for the CPU alone, not for {}", arguments.device);
  const std::string own(arguments.dtype.empty() ? to_string(models::dtype_of_folder(folder))
                                                : std::string_view(arguments.dtype));
  if (own != to_string(DType::kF32))
    fail("[--batch-invariant] computes in float32, and {} is {}; write --dtype float32",
         arguments.dtype.empty() ? "the model" : "--dtype", own);
  auto model = load_for_inference(folder, arguments, {.written = rollout::batch_invariant_fields()});
  if (!rollout::is_batch_invariant(model->decoder))
    fail("[--batch-invariant] needs a processor with AVX2 or AVX-512");
  return model;
}

}  // namespace temper::cli
