#pragma once
#include "ops/attention/attention.h"

namespace temper::backends::cudnn {

struct Options {
  // Backward gives the same bits every time. On compute capability 9.x cuDNN then writes the gradient of all
  // scores to memory, heads · queries · keys · 2 bytes for each document.
  bool deterministic = true;
  // The most that these scores may take: documents beyond it wait for their turn. One document always fits.
  int64_t score_bytes = int64_t{1} << 30;
};
Options& options();  // for measurements; a run does not change them

ops::Kernel<ops::Attention> attention_kernel();

}  // namespace temper::backends::cudnn
