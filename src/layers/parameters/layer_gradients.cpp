#include "layers/parameters/layer_gradients.h"

#include <utility>

namespace temper::layers {

LayerGradients::LayerGradients(const std::vector<int64_t>& sizes, Device device) : device_(device) {
  for (const int64_t size : sizes) parts_.push_back({size});
}

Tensor LayerGradients::memory(size_t parameter) {
  Part& part = parts_[parameter];
  if (!part.sum.defined()) part.sum = Tensor::empty({part.size}, dtype_, MemoryTag::kGradients, device_);
  return part.sum;
}

Tensor LayerGradients::sum(size_t parameter) {
  const Tensor sum = memory(parameter);
  if (!std::exchange(parts_[parameter].filled, true)) sum.fill_zero();
  return sum;
}

void LayerGradients::reset() {
  for (Part& part : parts_) part.filled = false;
}

void LayerGradients::release() {
  for (Part& part : parts_) part = {part.size};
}

}  // namespace temper::layers
