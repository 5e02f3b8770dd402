#include "backends/cuda/cuda.h"

namespace temper::backends {

void register_cuda();
void register_cuda() {
  register_tensors();
  register_primitives();
}

}  // namespace temper::backends
