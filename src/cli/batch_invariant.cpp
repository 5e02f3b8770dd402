#include "cli/batch_invariant.h"

#include "base/error.h"
#include "ops/linear/linear.h"

namespace temper::cli {

ops::OpsConfig batch_invariant_kernels(const std::string& device) {
  if (device != "cpu")
    fail("[--batch-invariant] kernels for it are there for the CPU alone, not for {}", device);
  return {.written = {{"linear", "onednn_invariant"}, {"paged_attention", "onednn_invariant"}}};
}

void check_batch_invariant(const layers::Decoder& model) {
  if (!model.ops().at<ops::Linear>("head").batch_invariant)
    fail(
        "[--batch-invariant] needs a processor with AVX2 or AVX-512, and none whose matrix instructions "
        "compute bfloat16 (AMX)");
}

}  // namespace temper::cli
