#include "backends/cudnn/cudnn.h"

namespace temper::backends {

void register_cudnn();
void register_cudnn() {
  ops::kernels<ops::Attention>().add("cudnn", cudnn::attention_kernel());
  ops::kernels<ops::Attention>().add("cudnn_nondeterministic", cudnn::nondeterministic_attention_kernel());
}

}  // namespace temper::backends
