#include "layers/parameters.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
#include "layers/quantizers.h"
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

ParameterStore::ParameterStore(WeightTable table, DType dtype, Device device, std::optional<DType> frozen,
                               const std::optional<Layout>& layout)
    : table_(std::move(table)), layout_(layout ? *layout : Layout(table_)), dtype_(dtype), device_(device) {
  if (frozen && *frozen != DType::kF8E4M3)
    fail("frozen weights are kept in {} or as the others, not in {}", to_string(DType::kF8E4M3),
         to_string(*frozen));
  const auto empty = [&](const Shape& shape, DType kept) {
    return Tensor::empty(shape, kept, MemoryTag::kWeights, device);
  };
  for (size_t i = 0; i < table_.specs().size(); ++i) {
    const Shape& shape = layout_[i].own();
    const bool narrow = frozen && spec(i).quantize;
    Parameter& parameter = parameters_.emplace_back();
    parameter.value = empty(shape, narrow ? *frozen : spec(i).dtype.value_or(dtype));
    if (narrow) parameter.scales = empty({shape[0]}, DType::kF32);
  }
  changed();
}

std::vector<PlacedTensor> ParameterStore::placed() const {
  std::vector<PlacedTensor> all;
  for (size_t i = 0; i < size(); ++i) all.push_back({spec(i).name, value(spec(i).name), &layout_[i]});
  return all;
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
  return {id, parameters_[own], dtype_};
}

primitives::Matrix BoundWeight::matrix(Tape& tape) const {
  if (!exists()) return {};
  if (quantizer_) return (*quantizer_)(tape, tape.leaf(*parameter_));
  return parameter_->scales.defined() ? primitives::in_8_bits(*parameter_, dtype_) : tape.leaf(*parameter_);
}

Var BoundWeight::leaf(Tape& tape) const { return exists() ? tape.leaf(*parameter_) : Var{}; }

Tensor BoundWeight::value() const {
  return parameter_->scales.defined() ? primitives::dequantized(parameter_->value, parameter_->scales, dtype_)
                                      : parameter_->value;
}

void ParameterStore::set_rows(std::string_view name, int64_t first, const Tensor& rows) {
  changed();
  const size_t index = index_of(name);
  const Placement& placement = layout_[index];
  for (const Slice& slice : placement.own_rows(first, rows.dim(0))) try {
      set_own(parameters_[index], placement, slice, rows.narrow(0, slice.whole - first, slice.count));
    } catch (const Error& error) {
      if (!parameters_[index].scales.defined()) throw;
      fail("{}, from row {} on: {}", name, slice.whole, error.what());
    }
}

// A row's scale is that of the whole row, whichever columns are here.
void ParameterStore::set_own(const Parameter& parameter, const Placement& placement, const Slice& slice,
                             const Tensor& rows) {
  const Tensor values = parameter.value.narrow(0, slice.own, slice.count);
  if (!parameter.scales.defined()) return values.copy_from(placement.own_columns(rows));
  const Tensor codes = Tensor::empty(rows.shape(), values.dtype(), MemoryTag::kWorkspace),
               scales = Tensor::empty({slice.count}, DType::kF32, MemoryTag::kWorkspace);
  primitives::quantize_rows(rows.on({}, MemoryTag::kWorkspace).contiguous(MemoryTag::kWorkspace), codes,
                            scales);
  values.copy_from(placement.own_columns(codes));
  parameter.scales.narrow(0, slice.own, slice.count).copy_from(scales);
}

int64_t ParameterStore::num_elements() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.value.numel();
  return count;
}

void ParameterStore::initialize(uint64_t seed, double deviation) {
  changed();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const WeightSpec& spec = table_.specs()[i];
    const Parameter& parameter = parameters_[i];
    // Random numbers belong to elements of the whole.
    if (spec.buffer) {
      fill(parameter.value, 0);
    } else if (spec.shape.ndim() >= 2 && (parameter.scales.defined() || !layout_[i].is_whole())) {
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
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (spec(i).buffer) continue;
    Parameter& parameter = parameters_[i];
    if (parameter.scales.defined())
      fail("weights that are kept in {} cannot be trained", to_string(parameter.value.dtype()));
    parameter.grad = std::make_shared<GradSlot>();
    parameter.grad->keep_in(dtype);
  }
}

void ParameterStore::allocate_gradients() {
  for (Parameter& parameter : parameters_) {
    if (!parameter.grad) continue;
    parameter.grad->target(parameter.value);
    parameter.grad->reset();
  }
}

void ParameterStore::release_gradients() {
  for (Parameter& parameter : parameters_)
    if (parameter.grad) parameter.grad->release();
}

void ParameterStore::reset_gradients() {
  for (Parameter& parameter : parameters_)
    if (parameter.grad) parameter.grad->reset();
}

}  // namespace temper::layers
