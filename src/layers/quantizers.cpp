#include "layers/quantizers.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "primitives/amax.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

Tensor amax_of_pass(const PlannedQuantizer& planned, const Tensor& x) {
  return primitives::amax_of(x, {planned.kind.sharing == Sharing::kRow ? x.dim(0) : 1, 1});
}

// The rows of each of so many experts, or (one place) all, but those of weight 0, on x's device.
std::vector<Tensor> rows_by_place(const Tensor& x, const Tensor& ids, const Tensor& weights, int64_t places) {
  const Tensor seen = ids.on({}), factors = weights.on({}), values = x.contiguous().on({});
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(places));
  for (int64_t row = 0; row < ids.numel(); ++row)
    if (factors.data<float>()[row] != 0)
      rows[places == 1 ? 0 : static_cast<size_t>(seen.data<int32_t>()[row])].push_back(row);
  std::vector<Tensor> all;
  for (const std::vector<int64_t>& own : rows) {
    const Tensor some = Tensor::empty({std::ssize(own), x.dim(1)}, x.dtype(), MemoryTag::kWorkspace);
    const auto bytes = static_cast<size_t>(x.dim(1) * size_of(x.dtype()));
    auto* to = static_cast<char*>(some.raw());
    for (const int64_t row : own) {
      std::memcpy(to, static_cast<const char*>(values.raw()) + static_cast<size_t>(row) * bytes, bytes);
      to += bytes;
    }
    all.push_back(some.on(x.device()));
  }
  return all;
}

}  // namespace

Quantizers::Quantizers(QuantizerPlan plan, Device device, const WeightTable& table, const Layout& layout)
    : plan_(std::move(plan)) {
  for (const PlannedQuantizer& planned : plan_.quantizers) {
    const auto weight = static_cast<size_t>(table.find(planned.weight) - table.specs().data());
    // What comes and goes is there as a whole while it is rounded.
    QuantizerPart part = part_of(planned, layout[weight].unsharded());
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
  if (all_->observer()) return all_->observer()(*own_, x, 0);
  primitives::grow_amax(x, own_->amax);  // NaN stays, and is found when calibration ends
}

void BoundQuantizer::observe(const Tensor& x, const Tensor& ids, const Tensor& weights) const {
  const int64_t places = own_->amax.numel();
  if (all_->observer()) {
    const std::vector<Tensor> rows = rows_by_place(x, ids, weights, places);
    for (int64_t place = 0; place < places; ++place) {
      if (rows[static_cast<size_t>(place)].numel() == 0) continue;
      own_->observed = true;
      all_->observer()(*own_, rows[static_cast<size_t>(place)], place);
    }
    return;
  }
  // Of each row on its device, and then of each expert.
  const Tensor seen = ids.on({}), factors = weights.on({}), amax = own_->amax.on({}),
               largest = primitives::amax_of(x, {x.dim(0), 1}).on({});
  for (int64_t row = 0; row < x.dim(0); ++row) {
    if (factors.data<float>()[row] == 0) continue;
    own_->observed = true;
    float& own = amax.data<float>()[places == 1 ? 0 : seen.data<int32_t>()[row]];
    const float found = largest.data<float>()[row];
    own = found > own || found != found ? found : own;
  }
  own_->amax.copy_from(amax);
}

bool BoundQuantizer::observes(const Tensor& x) const {
  return all_->mode() == QuantizerMode::kObserve && own_->planned.of_input && own_->planned.keeps_amax() &&
         x.numel() > 0;
}

bool BoundQuantizer::rounds() const {
  return all_->mode() == QuantizerMode::kFake && (own_->planned.of_input || !all_->are_weights_rounded());
}

Var BoundQuantizer::round(Tape& tape, const Var& x, const Tensor& amax) const {
  const PlannedQuantizer& planned = own_->planned;
  const bool clips = planned.keeps_amax() && !planned.format.has_blocks();
  return planned.of_input
             ? ops::fake_quantize(tape, kernel_, x, amax, planned.format, clips)
             : ops::fake_quantize_parameter(tape, kernel_, x, planned.values, amax, planned.format, clips);
}

Var BoundQuantizer::operator()(Tape& tape, const Var& x) const {
  const PlannedQuantizer& planned = own_->planned;
  if (observes(x.value) && all_->tokens_count()) observe(x.value);
  if (!rounds()) return x;
  invariant(all_->ready() || only_counts(x.value.device()),
            fmt::format("{} rounds before the quantizers are calibrated", planned.name));
  const bool of_pass = planned.format.needs_amax() && !planned.keeps_amax();
  return round(tape, x, of_pass && x.value.numel() > 0 ? amax_of_pass(planned, x.value) : own_->amax);
}

Var BoundQuantizer::operator()(Tape& tape, const Var& x, const Tensor& ids, const Tensor& weights) const {
  const PlannedQuantizer& planned = own_->planned;
  if (observes(x.value)) observe(x.value, ids, weights);
  if (!rounds() || x.value.numel() == 0) return x;
  if (!planned.keeps_amax()) return (*this)(tape, x);
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  const Tensor amax =
      planned.count == 1 ? own_->amax.reshape({1, 1}) : primitives::amax_of_rows(own_->amax, ids);
  if (!planned.format.has_blocks()) return round(tape, x, amax);
  // Formats with blocks have one amax for a matrix: each row is one.
  const Var apart = primitives::reshape(tape, x, {rows, 1, columns});
  return primitives::reshape(tape, round(tape, apart, amax.reshape({amax.dim(0), 1, 1})), {rows, columns});
}

}  // namespace temper::layers
