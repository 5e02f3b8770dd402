#include "layers/parameters.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
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

ParameterStore::ParameterStore(WeightTable table, DType dtype, Device device)
    : table_(std::move(table)), dtype_(dtype), device_(device) {
  for (const WeightSpec& spec : table_.specs())
    parameters_.push_back({Tensor::empty(spec.shape, dtype, MemoryTag::kWeights, device), nullptr});
}

const Parameter& ParameterStore::at(std::string_view name) const {
  const WeightSpec* spec = table_.find(name);
  invariant(spec != nullptr, fmt::format("the weight table has no {}", name));
  return parameters_[static_cast<size_t>(spec - table_.specs().data())];
}

int64_t ParameterStore::num_elements() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.value.numel();
  return count;
}

void ParameterStore::initialize(uint64_t seed, double deviation) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const WeightSpec& spec = table_.specs()[i];
    if (spec.shape.ndim() >= 2)
      fill_normal(parameters_[i].value, seed, i, deviation);
    else
      fill(parameters_[i].value, spec.name.ends_with(".bias") ? 0.f : 1.f);
  }
}

void ParameterStore::enable_gradients(DType dtype) {
  for (Parameter& parameter : parameters_) {
    parameter.grad = std::make_shared<GradSlot>();
    parameter.grad->keep_in(dtype);
  }
}

void ParameterStore::allocate_gradients() {
  for (Parameter& parameter : parameters_) {
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
