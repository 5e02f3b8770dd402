#include "backends/cuda/primitives/primitives.h"

namespace temper::backends {

void register_cuda_primitives() {
  primitives::PrimitiveFunctions functions;
  set_elementwise(functions);
  set_matmul(functions);
  set_rows(functions);
  set_quantized(functions);
  set_nf4(functions);
  set_amax(functions);
  set_counts(functions);
  primitives::register_primitive_functions(DeviceType::kCuda, functions);
}

}  // namespace temper::backends
