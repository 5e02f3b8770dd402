#include "backends/cudnn/cudnn.h"

namespace temper::backends {

void register_cudnn();
void register_cudnn() { ops::kernels<ops::Attention>().add("cudnn", cudnn::attention_kernel()); }

}  // namespace temper::backends
