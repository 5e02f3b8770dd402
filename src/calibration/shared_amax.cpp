#include "calibration/shared_amax.h"

#include <cmath>

namespace temper::calibration {
namespace {

using quantizers::Quantizer;

// The one that is farther from 0, where every end of a range begins; NaN stays.
float farther(float a, float b) { return std::abs(b) > std::abs(a) || b != b ? b : a; }

// The rank's own at their places among all; 0 elsewhere.
Tensor placed(const Quantizer& each, const Tensor& ends, const Tensor& whole) {
  const Tensor own = ends.on({});
  if (!whole.defined()) return own.clone(MemoryTag::kData);
  const Tensor all = Tensor::zeros(whole.shape(), DType::kF32, MemoryTag::kData);
  for (size_t i = 0; i < each.elements.size(); ++i) {
    float& element = all.data<float>()[each.elements[i]];
    element = farther(element, own.data<float>()[i]);
  }
  return all;
}

// An amax, or one end of a range.
void share(const Quantizer& each, const Tensor& ends, const Tensor& whole, collectives::Group& ranks) {
  const Tensor all = placed(each, ends, whole);
  const auto values = all.values<float>();
  for (const std::vector<float>& other : ranks.gather("amax", std::span<const float>(values)))
    for (size_t i = 0; i < values.size(); ++i) values[i] = farther(values[i], other[i]);
  (whole.defined() ? whole : ends).copy_from(all);
}

}  // namespace

void share_amax(quantizers::Quantizers& quantizers, collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  for (Quantizer& each : quantizers.all()) {
    const bool is_shared = each.planned.of_input || each.whole.defined() || quantizers.are_on_stages();
    if (!each.planned.keeps_amax() || !is_shared) continue;
    share(each, each.amax, each.whole, ranks);
    if (each.low.defined()) share(each, each.low, each.whole_low, ranks);
  }
  quantizers.take_own();
}

}  // namespace temper::calibration
