#include "backends/cudnn/cudnn.h"

#include "backends/cudnn/library.h"
#include "base/libraries.h"

namespace temper::backends {

namespace {

LibraryState probe() {
  const cudnn::Library& library = cudnn::library();
  return {library.opened != nullptr, library.opened == nullptr ? library.refusal : library.version};
}

}  // namespace

void register_cudnn();
void register_cudnn() {
  registry<LibraryProbe>().add("cuDNN", probe);
  const auto add = [](std::string_view name, const ops::Kernel<ops::Attention>& kernel) {
    ops::kernels<ops::Attention>().add_before("cuda", name, kernel);  // which serves where these do not
  };
  add("cudnn", cudnn::attention_kernel());
  add("cudnn_nondeterministic", cudnn::nondeterministic_attention_kernel());
}

}  // namespace temper::backends
