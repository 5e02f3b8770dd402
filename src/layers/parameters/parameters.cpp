#include "layers/parameters/parameters.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/random.h"
#include "base/threads/threads.h"
#include "quantizers/quantizers.h"
#include "tensor/device_functions.h"

namespace temper::layers {
namespace {

// Room for 2^40 elements in each parameter's stream of random numbers.
constexpr int kElementBits = 40;

void fill_normal(const Tensor& value, uint64_t seed, size_t parameter, double deviation) {
  const uint64_t first = uint64_t{parameter} << kElementBits;
  if (value.device().type != DeviceType::kCpu)
    return tensor_functions(value.device()).fill_normal(value, seed, first, deviation);
  const Random random(seed, RandomPurpose::kInitialization);
  visit_float(value.dtype(), [&]<class T>() {
    T* out = value.data<T>();
    parallel_ranges(value.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        out[i] = T(static_cast<float>(deviation * random.normal(first + static_cast<uint64_t>(i))));
    });
  });
}

void fill(const Tensor& value, float number) {
  if (value.device().type != DeviceType::kCpu) return tensor_functions(value.device()).fill(value, number);
  visit_float(value.dtype(), [&]<class T>() { std::fill_n(value.data<T>(), value.numel(), T(number)); });
}

}  // namespace

ParameterStore::ParameterStore(WeightTable table, DType dtype, Device device,
                               std::optional<primitives::FrozenFormat> frozen, const Mesh& mesh, int rank,
                               Stages stages)
    : table_(std::move(table)),
      layout_(table_, mesh, rank, std::move(stages)),
      dtype_(dtype),
      device_(device) {
  const auto empty = [&](const Shape& shape, DType kept) {
    return Tensor::empty(shape, kept, MemoryTag::kWeights, device);
  };
  for (size_t i = 0; i < table_.specs().size(); ++i) {
    const Shape& shape = layout_[i].own();
    const bool narrow = frozen && spec(i).quantize;
    Parameter& parameter = parameters_.emplace_back();
    four_bits_.emplace_back();
    if (narrow && is_nf4(*frozen)) {
      const bool is_double = *frozen == primitives::FrozenFormat::kNf4Double;
      four_bits_[i] = std::make_unique<Nf4Weight>(spec(i), layout_[i], is_double, device);
      parameter.scales = four_bits_[i]->matrix().scales;
      parameter.gathered_on_use = layout_[i].is_flat();
      parameter.value = four_bits_[i]->matrix().codes;
      own_.push_back(four_bits_[i]->part());
      continue;
    }
    parameter.value = empty(shape, narrow ? DType::kF8E4M3 : spec(i).dtype.value_or(dtype));
    if (narrow) parameter.scales = empty({layout_[i].unsharded().own()[0]}, DType::kF32);
    parameter.gathered_on_use = layout_[i].is_flat();
    own_.push_back(parameter.gathered_on_use ? std::exchange(parameter.value, {}) : Tensor());
  }
  std::vector<int64_t> parts;
  for (size_t i = 0; i < size(); ++i)
    parts.push_back(
        layout_.sums_by_layer(i) ? div_exact(layout_[i].unsharded().own().numel(), layout_.shards(i)) : 0);
  layer_gradients_ = LayerGradients(parts, device);
  changed();
}

std::vector<PlacedTensor> ParameterStore::placed() const {
  std::vector<PlacedTensor> all;
  for (size_t i = 0; i < size(); ++i)
    all.push_back({spec(i).name, own_[i].defined() ? own_[i] : value(spec(i).name), &layout_[i]});
  return all;
}

Tensor ParameterStore::make_value(size_t index) {
  Shape shape = layout_[index].unsharded().own();
  if (four_bits_[index]) shape[1] /= 2;
  const Tensor value = Tensor::empty(shape, own_[index].dtype(), MemoryTag::kWeights, device_);
  if (four_bits_[index]) four_bits_[index]->set_codes(value);
  return parameters_[index].value = value;
}

void ParameterStore::drop_value(size_t index) {
  parameters_[index].value = {};
  if (four_bits_[index]) four_bits_[index]->set_codes({});
}

void ParameterStore::changed() {
  static std::atomic<uint64_t> latest = 0;
  version_ = ++latest;
}

size_t ParameterStore::index_of(std::string_view name) const {
  const WeightTable::Tied* tied = table_.find_tied(name);
  const WeightSpec* spec = table_.find(tied != nullptr ? tied->other : name);
  invariant(spec != nullptr, fmt::format("the weight table has no {}", name));
  return static_cast<size_t>(spec - table_.specs().data());
}

const Parameter& ParameterStore::at(std::string_view name) const { return parameters_[index_of(name)]; }

BoundWeight ParameterStore::bound(std::string_view name) const {
  const WeightTable::Tied* tied = table_.find_tied(name);
  const size_t own = index_of(name);
  const size_t id =
      tied == nullptr ? own : parameters_.size() + static_cast<size_t>(tied - table_.tied().data());
  return {id, parameters_[own], dtype_, four_bits_[own] ? &four_bits_[own]->matrix() : nullptr};
}

primitives::Matrix BoundWeight::matrix(Tape& tape) const {
  if (!exists()) return {};
  if (quantizer_) return (*quantizer_)(tape, tape.leaf(*parameter_));
  if (nf4_ != nullptr)
    return parameter_->gathered_on_use ? primitives::widened_again(*nf4_, dtype_)
                                       : primitives::widened(*nf4_, dtype_);
  return parameter_->scales.defined() ? primitives::in_8_bits(*parameter_, dtype_) : tape.leaf(*parameter_);
}

Var BoundWeight::leaf(Tape& tape) const { return exists() ? tape.leaf(*parameter_) : Var{}; }

Tensor BoundWeight::value() const {
  if (nf4_ != nullptr) return primitives::dequantized(*nf4_, dtype_);
  return parameter_->scales.defined() ? primitives::dequantized(parameter_->value, parameter_->scales, dtype_)
                                      : parameter_->value;
}

void ParameterStore::set_rows(std::string_view name, int64_t first, const Tensor& rows) {
  changed();
  const size_t index = index_of(name);
  if (four_bits_[index]) return four_bits_[index]->set_rows(first, rows);
  const Placement& placement = layout_[index];
  for (const Slice& slice : placement.own_rows(first, rows.dim(0))) try {
      set_own(index, slice, rows.narrow(0, slice.whole - first, slice.count));
    } catch (const Error& error) {
      if (!parameters_[index].scales.defined()) throw;
      fail("{}, from row {} on: {}", name, slice.whole, error.what());
    }
}

bool ParameterStore::set_nf4(std::string_view name, int64_t first, const quant::Nf4& matrix) {
  const size_t index = index_of(name);
  if (!four_bits_[index]) return false;
  changed();
  four_bits_[index]->set_encoded(name, first, matrix);
  return true;
}

// A row's scale is that of the whole row, whichever columns are here.
void ParameterStore::set_own(size_t index, const Slice& slice, const Tensor& rows) {
  const Parameter& parameter = parameters_[index];
  const Placement& placement = layout_[index];
  const auto set = [&](const Tensor& values) {
    if (!own_[index].defined()) return parameter.value.narrow(0, slice.own, slice.count).copy_from(values);
    set_part(own_[index], placement.first_element(), slice.own, values);
  };
  if (!parameter.scales.defined()) return set(placement.own_columns(rows));
  const Tensor codes = Tensor::empty(rows.shape(), DType::kF8E4M3, MemoryTag::kWorkspace),
               scales = Tensor::empty({slice.count}, DType::kF32, MemoryTag::kWorkspace);
  primitives::quantize_rows(rows.on({}, MemoryTag::kWorkspace).contiguous(MemoryTag::kWorkspace), codes,
                            scales);
  set(placement.own_columns(codes));
  parameter.scales.narrow(0, slice.own, slice.count).copy_from(scales);
}

int64_t ParameterStore::num_elements() const {
  int64_t count = 0;
  for (size_t i = 0; i < size(); ++i) count += (four_bits_[i] ? 2 : 1) * own(i).numel();
  return count;
}

void ParameterStore::initialize(uint64_t seed, double deviation) {
  changed();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!layout_[i].is_here()) continue;
    const WeightSpec& spec = table_.specs()[i];
    const Parameter& parameter = parameters_[i];
    // Random numbers belong to elements of the whole.
    if (spec.buffer) {
      fill(parameter.value, 0);
    } else if (spec.shape.ndim() >= 2 && (parameter.scales.defined() || !layout_[i].has_whole())) {
      const Tensor values = Tensor::empty(spec.shape, dtype_, MemoryTag::kWorkspace, device_);
      fill_normal(values, seed, i, deviation);
      set_rows(spec.name, 0, values);
    } else if (spec.shape.ndim() >= 2) {
      fill_normal(parameter.value, seed, i, deviation);
    } else {
      fill(parameter.value, spec.zeros || spec.name.ends_with(".bias") ? 0.f : 1.f);
    }
  }
}

void ParameterStore::enable_gradients(DType dtype) {
  layer_gradients_.keep_in(dtype);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (spec(i).buffer || !layout_[i].is_here()) continue;
    Parameter& parameter = parameters_[i];
    if (parameter.scales.defined())
      fail("weights that are kept in {} cannot be trained",
           to_string(four_bits_[i] ? primitives::FrozenFormat::kNf4 : primitives::FrozenFormat::kFloat8));
    parameter.grad = std::make_shared<GradSlot>();
    parameter.grad->keep_in(dtype);
  }
}

void ParameterStore::allocate_gradients() {
  for (size_t i = 0; i < size(); ++i) {
    const Parameter& parameter = parameters_[i];
    if (!parameter.grad || layout_.sums_by_layer(i)) continue;
    parameter.grad->target(parameter.value);
    parameter.grad->reset();
  }
}

void ParameterStore::release_gradients() {
  for (Parameter& parameter : parameters_)
    if (parameter.grad) parameter.grad->release();
  layer_gradients_.release();
}

void ParameterStore::reset_gradients() {
  for (Parameter& parameter : parameters_)
    if (parameter.grad) parameter.grad->reset();
  layer_gradients_.reset();
}

}  // namespace temper::layers
