#include "cli/batch_invariant.h"

#include "base/error.h"
#include "rollout/batch_invariant.h"

namespace temper::cli {

ops::OpsConfig batch_invariant_kernels(const std::string& device) {
  if (device != "cpu")
    fail("[--batch-invariant] kernels for it are there for the CPU alone, not for {}", device);
  return {.written = rollout::batch_invariant_fields()};
}

void check_batch_invariant(const layers::Decoder& model) {
  if (!rollout::is_batch_invariant(model))
    fail(
        "[--batch-invariant] needs a processor with AVX2 or AVX-512, and none whose matrix instructions "
        "compute bfloat16 (AMX)");
}

}  // namespace temper::cli
