#include "backends/cudnn/cudnn.h"

#include "backends/cudnn/library.h"
#include "backends/libraries.h"

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
  ops::kernels<ops::Attention>().add("hopper", cudnn::hopper_attention_kernel());
  ops::kernels<ops::Attention>().add("cudnn", cudnn::attention_kernel());
  ops::kernels<ops::Attention>().add("cudnn_nondeterministic", cudnn::nondeterministic_attention_kernel());
}

}  // namespace temper::backends
