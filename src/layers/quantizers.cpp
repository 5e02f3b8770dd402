#include "layers/quantizers.h"

#include <algorithm>

#include "base/error.h"
#include "primitives/amax.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

Tensor amax_of_pass(const PlannedQuantizer& planned, const Tensor& x) {
  return primitives::amax_of(x, {planned.kind.sharing == Sharing::kRow ? x.dim(0) : 1, 1});
}

}  // namespace

Quantizers::Quantizers(QuantizerPlan plan, Device device, const WeightTable& table, const Layout& layout)
    : plan_(std::move(plan)) {
  for (const PlannedQuantizer& planned : plan_.quantizers) {
    const auto weight = static_cast<size_t>(table.find(planned.weight) - table.specs().data());
    QuantizerPart part = part_of(planned, layout[weight]);
    Quantizer own{std::move(part.own)};
    if (planned.keeps_amax())
      own.amax = Tensor::zeros(own.planned.amax, DType::kF32, MemoryTag::kWeights).on(device);
    if (!part.elements.empty()) own.whole = Tensor::zeros(planned.amax, DType::kF32, MemoryTag::kWeights);
    own.elements = std::move(part.elements);
    all_.push_back(std::move(own));
  }
}

Quantizer* Quantizers::find(std::string_view name) {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const Quantizer& each) { return each.planned.name == name; });
  return found == all_.end() ? nullptr : &*found;
}

std::vector<NamedAmax> Quantizers::state() const {
  std::vector<NamedAmax> state;
  for (size_t i = 0; i < all_.size(); ++i) {
    const PlannedQuantizer& planned = plan_.quantizers[i];
    const Tensor& amax = all_[i].whole.defined() ? all_[i].whole : all_[i].amax;
    if (!planned.keeps_amax()) continue;
    if (planned.experts == 0 || planned.count == 1) {
      state.push_back({planned.name + "._amax", amax});
      continue;
    }
    for (int64_t e = 0; e < planned.count; ++e)
      state.push_back({fmt::format("{}.{}._amax", planned.name, e), amax.narrow(0, e, 1)});
  }
  return state;
}

void Quantizers::take_own() {
  for (Quantizer& each : all_) {
    if (!each.whole.defined()) continue;
    std::vector<float> own;
    for (const int64_t element : each.elements) own.push_back(each.whole.data<float>()[element]);
    each.amax.copy_from(Tensor::from<float>(own, each.amax.shape()));
  }
}

void BoundQuantizer::observe(const Tensor& x) const {
  own_->observed = true;
  if (all_->observer()) return all_->observer()(*own_, x);
  primitives::grow_amax(x, own_->amax);  // NaN stays, and is found when calibration ends
}

Var BoundQuantizer::operator()(Tape& tape, const Var& x) const {
  const PlannedQuantizer& planned = own_->planned;
  if (all_->mode() == QuantizerMode::kOff) return x;
  if (all_->mode() == QuantizerMode::kObserve) {
    if (planned.of_input && planned.keeps_amax() && x.value.numel() > 0) observe(x.value);
    return x;
  }
  invariant(all_->ready() || only_counts(x.value.device()),
            fmt::format("{} rounds before the quantizers are calibrated", planned.name));
  const bool of_pass = planned.format.needs_amax() && !planned.keeps_amax();
  const Tensor amax = of_pass && x.value.numel() > 0 ? amax_of_pass(planned, x.value) : own_->amax;
  const bool clips = planned.keeps_amax() && !planned.format.has_blocks();
  return planned.of_input
             ? ops::fake_quantize(tape, kernel_, x, amax, planned.format, clips)
             : ops::fake_quantize_parameter(tape, kernel_, x, planned.values, amax, planned.format, clips);
}

}  // namespace temper::layers
