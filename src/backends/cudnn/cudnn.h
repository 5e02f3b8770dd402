#pragma once
#include "ops/attention/attention.h"

namespace temper::backends::cudnn {

// Backward gives the same bits every time. On compute capability 9.x cuDNN then writes the gradient of all
// scores to memory, heads · queries · keys · 2 bytes for each document.
ops::Kernel<ops::Attention> attention_kernel();
// Sums the queries' gradients in whatever order blocks finish: faster, and never chosen unless it is written.
ops::Kernel<ops::Attention> nondeterministic_attention_kernel();

}  // namespace temper::backends::cudnn
