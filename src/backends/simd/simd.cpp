#include "backends/cpu/vector_targets.h"

namespace temper::backends {

void register_simd() { limit_vector_targets(); }

}  // namespace temper::backends
