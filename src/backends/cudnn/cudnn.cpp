#include "backends/cudnn/library.h"
#include "base/parts/libraries.h"

namespace temper::backends {

namespace {

LibraryState probe() {
  const cudnn::Library& library = cudnn::library();
  return {library.opened != nullptr, library.opened == nullptr ? library.refusal : library.version};
}

}  // namespace

void register_cudnn() { registry<LibraryProbe>().add("cuDNN", probe); }

}  // namespace temper::backends
