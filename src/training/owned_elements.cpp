#include "training/owned_elements.h"

#include <algorithm>

namespace temper::training {

Tensor counted_once(const Placement& placement, const Tensor& values, float other) {
  const Tensor all = Tensor::empty(values.shape(), DType::kF32, MemoryTag::kData);
  std::fill_n(all.data<float>(), all.numel(), other);
  for (const Slice& run : owned_runs(placement))
    std::copy_n(values.data<float>() + run.own, run.count, all.data<float>() + run.own);
  return all;
}

}  // namespace temper::training
