#include <cmath>

#include "primitives/cpu.h"

namespace temper::primitives::cpu {

void grow_amax(const Tensor& x, const Tensor& amax, quant::Extreme extreme) {
  const Tensor found = quant::amax_of(x.contiguous(), amax.shape(), extreme);
  const float* const now = found.data<float>();
  float* const most = amax.data<float>();
  for (int64_t i = 0; i < found.numel(); ++i)
    if (std::abs(now[i]) > std::abs(most[i]) || now[i] != now[i]) most[i] = now[i];
}

}  // namespace temper::primitives::cpu
