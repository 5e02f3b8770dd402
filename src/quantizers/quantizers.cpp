#include "quantizers/quantizers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "primitives/amax.h"
#include "primitives/fake_quantized.h"
#include "primitives/primitives.h"
#include "quant/groups.h"

namespace temper::quantizers {
namespace {

Tensor amax_of_pass(const PlannedQuantizer& planned, const Tensor& x, quant::Extreme extreme) {
  return primitives::amax_of(x, {planned.kind.sharing == Sharing::kRow ? x.dim(0) : 1, 1}, extreme);
}

quant::Extreme upper_end(const PlannedQuantizer& planned) {
  return planned.has_zero_points() ? quant::Extreme::kHigh : quant::Extreme::kMagnitude;
}

// The one with the larger magnitude; NaN stays.
float farther(float a, float b) { return std::abs(b) > std::abs(a) || b != b ? b : a; }

// The rows of each of `places` experts, or (one place) all, except those of weight 0, on x's device.
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

// Names of what each expert has are those of a single one with a number behind.
struct StateName {
  std::string quantizer;
  const char* what;
  bool of_input;
};
void add_state(std::vector<NamedScales>& state, const StateName& name, int64_t experts,
               const std::function<Tensor(int64_t)>& of) {
  const auto& [quantizer, what, of_input] = name;
  if (experts == 0) return state.push_back({fmt::format("{}.{}", quantizer, what), of(0), of_input});
  for (int64_t e = 0; e < experts; ++e)
    state.push_back({fmt::format("{}.{}.{}", quantizer, e, what), of(e), of_input});
}

ColumnScales make_columns(const QuantizerPart& part, const PlannedQuantizer& planned, Device device) {
  const auto empty = [](const Shape& shape, Device on) {
    return Tensor::empty(shape, DType::kF32, MemoryTag::kWeights, on);
  };
  const Shape& own = part.own.pre_quant_scale;
  ColumnScales columns{empty(planned.pre_quant_scale, {}), empty(own, device), empty(own, device),
                       part.columns};
  std::ranges::fill(columns.whole.values<float>(), 1.f);
  columns.take_own();
  return columns;
}

// Of the whole matrix, or of the experts that are here, whatever ranks have the rest.
Tensor second_amax(const Quantizer& own, const PlannedQuantizer& whole) {
  const Tensor largest = own.whole.defined() ? quant::amax_of(own.whole, whole.second_amax())
                                             : quant::amax_of(own.amax.on({}), own.planned.second_amax());
  if (largest.numel() == own.second.numel()) return largest;
  const int64_t groups = own.whole.numel() / largest.numel();
  return largest.narrow(0, own.elements.front() / groups, own.second.dim(0)).contiguous();
}

}  // namespace

ops::SecondRounding second_rounding(const Quantizer& weight) {
  if (!weight.planned.rounds_again()) return {};
  return {weight.second, weight.planned.second_format()};
}

void ColumnScales::take_own() const {
  std::vector<float> own, divided;
  for (const int64_t place : places) {
    own.push_back(whole.data<float>()[place]);
    divided.push_back(1 / own.back());
  }
  pre_quant.copy_from(Tensor::from<float>(own, pre_quant.shape()));
  inverse.copy_from(Tensor::from<float>(divided, inverse.shape()));
}

Quantizers::Quantizers(QuantizerPlan plan, Device device, const WeightTable& table, const Layout& layout)
    : plan_(std::move(plan)), on_stages_(layout.stages().count > 1) {
  for (const PlannedQuantizer& planned : plan_.quantizers) {
    const auto weight = static_cast<size_t>(table.find(planned.weight) - table.specs().data());
    // What comes and goes is there as a whole while it is rounded.
    QuantizerPart part = part_of(planned, layout[weight].unsharded());
    Quantizer own{std::move(part.own)};
    own.is_here = layout[weight].is_here();
    const auto zeros = [](const Shape& shape, Device on) {
      return Tensor::zeros(shape, DType::kF32, MemoryTag::kWeights).on(on);
    };
    const bool has_low = planned.keeps_amax() && planned.has_zero_points();
    if (planned.keeps_amax()) own.amax = zeros(own.planned.amax, device);
    if (has_low) own.low = zeros(own.planned.amax, device);
    if (own.planned.rounds_again()) own.second = zeros(own.planned.second_amax(), device);
    if (!part.elements.empty()) own.whole = zeros(planned.amax, {});
    if (!part.elements.empty() && has_low) own.whole_low = zeros(planned.amax, {});
    if (planned.scales_columns() && (!planned.of_input || planned.kind.has_factors))
      own.columns = make_columns(part, planned, device);
    own.elements = std::move(part.elements);
    all_.push_back(std::move(own));
  }
}

Quantizer* Quantizers::find(std::string_view name) {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const Quantizer& each) { return each.planned.name == name; });
  return found == all_.end() ? nullptr : &*found;
}

bool Quantizers::scale_columns() const {
  return std::ranges::any_of(all_, [](const Quantizer& each) { return each.columns.exist(); });
}

const Quantizer* Quantizers::weight_of_module(const Quantizer& of) const {
  if (!of.planned.of_input) return &of;
  if (of.planned.role != QuantizerRole::kInput) return nullptr;
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Quantizer& each) {
    return !each.planned.of_input && each.planned.weight == of.planned.weight;
  });
  return found == all_.end() ? nullptr : &*found;
}

std::vector<NamedScales> Quantizers::state() const {
  std::vector<NamedScales> state;
  for (size_t i = 0; i < all_.size(); ++i) {
    const PlannedQuantizer& planned = plan_.quantizers[i];
    const int64_t of_experts = planned.experts > 0 && planned.count > 1 ? planned.count : 0;
    const auto add = [&](const char* what, const Tensor& own, const Tensor& whole) {
      const Tensor& all = whole.defined() ? whole : own;
      add_state(state, {planned.name, what, planned.of_input}, of_experts,
                [&](int64_t e) { return of_experts == 0 ? all : all.narrow(0, e, 1); });
    };
    if (all_[i].low.defined()) add("_low", all_[i].low, all_[i].whole_low);
    if (planned.keeps_amax()) add(all_[i].low.defined() ? "_high" : "_amax", all_[i].amax, all_[i].whole);
    const ColumnScales& columns = all_[i].columns;
    if (!columns.exist()) continue;
    const std::string input = planned.module() + ".input_quantizer";
    add_state(
        state, {input, "_pre_quant_scale", plan_.find(input) != nullptr}, planned.experts, [&](int64_t e) {
          const int64_t width = columns.whole.dim(-1);
          return (planned.experts == 0 ? columns.whole : columns.whole.narrow(0, e, 1)).reshape({width});
        });
  }
  return state;
}

void Quantizers::take_own() {
  for (Quantizer& each : all_) {
    if (each.columns.exist()) each.columns.take_own();
    if (!each.whole.defined()) continue;
    const auto take = [&](const Tensor& own, const Tensor& whole) {
      std::vector<float> values;
      for (const int64_t element : each.elements) values.push_back(whole.data<float>()[element]);
      own.copy_from(Tensor::from<float>(values, own.shape()));
    };
    take(each.amax, each.whole);
    if (each.low.defined()) take(each.low, each.whole_low);
  }
}

void Quantizers::set_ready() {
  for (size_t i = 0; i < all_.size(); ++i)
    if (all_[i].planned.rounds_again()) all_[i].second.copy_from(second_amax(all_[i], plan_.quantizers[i]));
  ready_ = true;
}

BoundQuantizer::BoundQuantizer(Quantizers& all, Quantizer& own, ops::Bound<ops::FakeQuantize> kernel)
    : all_(&all), own_(&own), kernel_(kernel) {
  if (!own.planned.scales_columns()) return;
  columns_ = own.columns.exist() ? &own.columns : &all.weight_of_module(own)->columns;
}

void BoundQuantizer::observe(const Tensor& x) const {
  own_->observed = true;
  if (all_->observer()) return all_->observer()(*own_, x, 0);
  if (only_watches_ || !own_->planned.keeps_amax()) return;
  // NaN stays, and is found when calibration ends.
  const Tensor seen = columns_ == nullptr ? x : primitives::scaled_columns(x, columns_->pre_quant);
  primitives::grow_amax(seen, own_->amax, upper_end(own_->planned));
  if (own_->low.defined()) primitives::grow_amax(seen, own_->low, quant::Extreme::kLow);
}

void BoundQuantizer::observe(const Tensor& x, const Tensor& ids, const Tensor& weights) const {
  const bool by_expert = only_watches_ || columns_ != nullptr;
  const int64_t places = by_expert ? own_->planned.values[0] : own_->amax.numel();
  if (all_->observer()) {
    const std::vector<Tensor> rows = rows_by_place(x, ids, weights, places);
    for (int64_t place = 0; place < places; ++place) {
      if (rows[static_cast<size_t>(place)].numel() == 0) continue;
      own_->observed = true;
      all_->observer()(*own_, rows[static_cast<size_t>(place)], place);
    }
    return;
  }
  if (only_watches_ || !own_->planned.keeps_amax()) return;
  // Of each row on its device, and then of each expert.
  const Tensor scaled = columns_ == nullptr ? x
                                            : primitives::scaled_columns(
                                                  x, primitives::rows_of_experts(columns_->pre_quant, ids));
  const Tensor seen = ids.on({}), factors = weights.on({});
  const auto grow = [&](const Tensor& kept, quant::Extreme extreme) {
    const Tensor all = kept.on({}), found = primitives::amax_of(scaled, {x.dim(0), 1}, extreme).on({});
    for (int64_t row = 0; row < x.dim(0); ++row) {
      if (factors.data<float>()[row] == 0) continue;
      own_->observed = true;
      float& own = all.data<float>()[all.numel() == 1 ? 0 : seen.data<int32_t>()[row]];
      own = farther(own, found.data<float>()[row]);
    }
    kept.copy_from(all);
  };
  grow(own_->amax, upper_end(own_->planned));
  if (own_->low.defined()) grow(own_->low, quant::Extreme::kLow);
}

bool BoundQuantizer::observes(const Tensor& x) const {
  const bool asked =
      only_watches_ || (own_->planned.of_input && (own_->planned.keeps_amax() || columns_ != nullptr));
  return asked && all_->mode() == QuantizerMode::kObserve && x.numel() > 0;
}

bool BoundQuantizer::rounds() const {
  return !only_watches_ && all_->mode() == QuantizerMode::kFake &&
         (own_->planned.of_input || !all_->are_weights_rounded());
}

void BoundQuantizer::must_be_ready(Device device) const {
  invariant(all_->ready() || only_counts(device),
            fmt::format("{} rounds before the quantizers are calibrated", own_->planned.name));
}

ops::RowRounding BoundQuantizer::row_rounding(Device device) const {
  using Amax = ops::RowRounding::Amax;
  const PlannedQuantizer& planned = own_->planned;
  if (!rounds()) return {};
  must_be_ready(device);
  if (!planned.format.needs_amax()) return {true, planned.format, Amax::kNone, {}};
  if (!planned.keeps_amax()) return {true, planned.format, Amax::kRows, {}};
  return {true, planned.format, Amax::kExperts, own_->amax.reshape({own_->amax.numel()})};
}

ops::ColumnFactors BoundQuantizer::factors() const {
  if (columns_ == nullptr) return {};
  return own_->planned.of_input ? ops::ColumnFactors{columns_->pre_quant, columns_->inverse}
                                : ops::ColumnFactors{columns_->inverse, columns_->pre_quant};
}

Var BoundQuantizer::round(Tape& tape, const Var& x, const Ends& ends,
                          const ops::ColumnFactors& factors) const {
  const PlannedQuantizer& planned = own_->planned;
  const bool clips = planned.keeps_amax() && !planned.format.has_blocks();
  if (!planned.of_input)
    return ops::fake_quantize_parameter(tape, *kernel_, x, ends.amax, planned.format,
                                        {planned.values, clips, factors, second_rounding(*own_), ends.low});
  if (planned.has_zero_points())
    return ops::fake_quantize(tape, *kernel_, x, {ends.low, ends.amax}, planned.format, clips);
  return ops::fake_quantize(tape, *kernel_, x, ends.amax, planned.format, clips, factors);
}

BoundQuantizer::Ends BoundQuantizer::ends_for(const Tensor& x, const Tensor& by) const {
  const PlannedQuantizer& planned = own_->planned;
  if (!planned.format.needs_amax() || planned.keeps_amax() || x.numel() == 0) return {own_->amax, own_->low};
  const Tensor seen = by.defined() ? primitives::scaled_columns(x, by) : x;
  Ends ends{amax_of_pass(planned, seen, upper_end(planned))};
  if (planned.has_zero_points()) ends.low = amax_of_pass(planned, seen, quant::Extreme::kLow);
  return ends;
}

BoundQuantizer::Ends BoundQuantizer::ends_of_rows(const Tensor& ids) const {
  const auto of_rows = [&](const Tensor& kept) {
    if (!kept.defined()) return kept;
    return kept.numel() == 1 ? kept.reshape({1, 1}) : primitives::rows_of_experts(kept, ids);
  };
  return {of_rows(own_->amax), of_rows(own_->low)};
}

Var BoundQuantizer::operator()(Tape& tape, const Var& x) const {
  if (observes(x.value) && all_->tokens_count()) observe(x.value);
  if (!rounds()) return x;
  must_be_ready(x.value.device());
  const ops::ColumnFactors factors = this->factors();
  return round(tape, x, ends_for(x.value, factors.by), factors);
}

Var BoundQuantizer::operator()(Tape& tape, const Var& x, const Tensor& ids, const Tensor& weights) const {
  const PlannedQuantizer& planned = own_->planned;
  if (observes(x.value)) observe(x.value, ids, weights);
  if (!rounds() || x.value.numel() == 0) return x;
  if (!planned.keeps_amax() && columns_ == nullptr) return (*this)(tape, x);
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  ops::ColumnFactors factors;
  if (columns_ != nullptr)
    factors = {primitives::rows_of_experts(columns_->pre_quant, ids),
               primitives::rows_of_experts(columns_->inverse, ids)};
  const Ends ends = planned.keeps_amax() ? ends_of_rows(ids) : ends_for(x.value, factors.by);
  if (!planned.format.has_blocks() && columns_ == nullptr) return round(tape, x, ends, {});
  // Formats with blocks have one amax for a matrix, and factors are of one: each row is one.
  const auto apart = [&](const Tensor& of) {
    return of.defined() ? of.reshape({of.dim(0), 1, of.dim(1)}) : of;
  };
  const Var matrices = primitives::reshape(tape, x, {rows, 1, columns});
  return primitives::reshape(
      tape, round(tape, matrices, {apart(ends.amax)}, {apart(factors.by), apart(factors.back)}),
      {rows, columns});
}

}  // namespace temper::quantizers
