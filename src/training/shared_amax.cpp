#include "training/shared_amax.h"

namespace temper::training {
namespace {

using layers::Quantizer;

// The rank's own at their places among all; 0 elsewhere, which no amax is below.
Tensor placed(const Quantizer& each) {
  const Tensor own = each.amax.on({});
  if (!each.whole.defined()) return own.clone(MemoryTag::kData);
  const Tensor all = Tensor::zeros(each.whole.shape(), DType::kF32, MemoryTag::kData);
  for (size_t i = 0; i < each.elements.size(); ++i) {
    float& element = all.data<float>()[each.elements[i]];
    const float found = own.data<float>()[i];
    element = found > element || found != found ? found : element;
  }
  return all;
}

}  // namespace

void share_amax(layers::Quantizers& quantizers, collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  for (Quantizer& each : quantizers.all()) {
    if (!each.planned.keeps_amax() || (!each.planned.of_input && !each.whole.defined())) continue;
    const Tensor all = placed(each);
    const auto values = all.values<float>();
    for (const std::vector<float>& other : ranks.gather("amax", std::span<const float>(values)))
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = other[i] > values[i] || other[i] != other[i] ? other[i] : values[i];
    (each.whole.defined() ? each.whole : each.amax).copy_from(all);
  }
  quantizers.take_own();
}

}  // namespace temper::training
