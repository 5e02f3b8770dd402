#include "cli/arguments/batch_invariant.h"

#include "base/error.h"
#include "rollout/batch_invariant.h"

namespace temper::cli {

std::unique_ptr<models::Model> load_batch_invariant(const std::string& folder,
                                                    const SamplingArguments& arguments,
                                                    const quantizers::QuantizeOptions& quantize) {
  const std::optional<DType> dtype =
      arguments.dtype.empty() ? models::dtype_of_folder(folder) : dtype_from_string(arguments.dtype);
  if (!dtype) return load_for_inference(folder, arguments);  // which says so
  const ops::FieldValues fields = rollout::batch_invariant_fields(arguments.device, *dtype);
  if (fields.empty()) {
    const bool cpu = arguments.device == "cpu";
    if (!cpu && !arguments.device.starts_with("cuda"))
      fail("[--batch-invariant] kernels for it are there for CPUs and NVIDIA GPUs, not for {}",
           arguments.device);
    fail("[--batch-invariant] computes in {} on {}, and {} is {}; write --dtype {}",
         cpu ? "float32" : "bfloat16", arguments.device, arguments.dtype.empty() ? "the model" : "--dtype",
         to_string(*dtype), cpu ? "float32" : "bfloat16");
  }
  auto model = load_for_inference(folder, arguments, {.written = fields}, quantize);
  if (!rollout::is_batch_invariant(model->decoder))
    fail("[--batch-invariant] needs a processor with AVX2 or AVX-512");
  return model;
}

}  // namespace temper::cli
