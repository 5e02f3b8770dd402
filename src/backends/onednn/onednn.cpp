#include "backends/onednn/onednn.h"

namespace temper::backends {

void register_onednn();
void register_onednn() { ops::kernels<ops::Linear>().add("onednn", linear_kernel()); }

}  // namespace temper::backends
