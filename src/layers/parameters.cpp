#include "layers/parameters.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
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

// The part that a rank holds of a source with `rows` rows, which begin at row `first` of the parameter.
primitives::Nf4Part nf4_part(const Placement& placement, int64_t first, int64_t rows) {
  primitives::Nf4Part part{rows, placement.own_rows(first, rows)};
  for (Slice& slice : part.here) slice.whole -= first;
  return part;
}

primitives::Nf4Matrix empty_nf4(const WeightSpec& spec, const Placement& placement, bool double_quantization,
                                Device device) {
  const Slice columns = placement.held().columns;
  if (columns.whole % 2 != 0 || columns.count % 2 != 0)
    fail("{} has {} columns, of {}: two codes of nf4 share a byte", spec.name, columns.count, spec.shape[1]);
  std::vector<primitives::Nf4Part> parts;
  int64_t first = 0;
  for (const WeightSource& source : spec.sources) {
    parts.push_back(nf4_part(placement, first, source.rows));
    first += source.rows;
  }
  return primitives::empty_nf4(parts, spec.shape[1], columns, double_quantization, device);
}

// Of rows that are compact, from the parameter's own row `row` on, the elements that a part has, which begins
// with element `here` of all rows.
void set_part(const Tensor& part, int64_t here, int64_t row, const Tensor& rows) {
  const Tensor all = rows.contiguous(MemoryTag::kWorkspace).reshape({rows.numel()});
  const int64_t first = row * (rows.numel() / rows.dim(0));
  const int64_t begin = std::max(first, here), end = std::min(first + all.numel(), here + part.numel());
  if (begin < end)
    part.narrow(0, begin - here, end - begin).copy_from(all.narrow(0, begin - first, end - begin));
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
      four_bits_[i] =
          std::make_unique<FourBits>(FourBits{empty_nf4(spec(i), layout_[i], is_double, device), {}, 0});
      primitives::Nf4Matrix& matrix = four_bits_[i]->matrix;
      parameter.scales = matrix.scales;
      parameter.gathered_on_use = layout_[i].is_flat();
      own_.emplace_back();
      if (parameter.gathered_on_use) {
        matrix.codes = {};
        own_[i] = empty({shape.numel() / 2}, DType::kU8);
      }
      parameter.value = matrix.codes;
      continue;
    }
    parameter.value = empty(shape, narrow ? DType::kF8E4M3 : spec(i).dtype.value_or(dtype));
    if (narrow) parameter.scales = empty({layout_[i].unsharded().own()[0]}, DType::kF32);
    parameter.gathered_on_use = layout_[i].is_flat();
    own_.push_back(parameter.gathered_on_use ? std::exchange(parameter.value, {}) : Tensor());
  }
  own_gradients_.resize(size());
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
  if (four_bits_[index]) four_bits_[index]->matrix.codes = value;
  return parameters_[index].value = value;
}

void ParameterStore::drop_value(size_t index) {
  parameters_[index].value = {};
  if (four_bits_[index]) four_bits_[index]->matrix.codes = {};
}

Tensor ParameterStore::own_gradient_memory(size_t index) {
  Tensor& sum = own_gradients_[index].sum;
  if (!sum.defined())
    sum = Tensor::empty({div_exact(layout_[index].unsharded().own().numel(), layout_.shards(index))},
                        gradients_, MemoryTag::kGradients, device_);
  return sum;
}

Tensor ParameterStore::own_gradient(size_t index) {
  const Tensor sum = own_gradient_memory(index);
  if (!std::exchange(own_gradients_[index].filled, true)) sum.fill_zero();
  return sum;
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
  return {id, parameters_[own], dtype_, four_bits_[own] ? &four_bits_[own]->matrix : nullptr};
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
  if (four_bits_[index]) return collect_nf4(index, first, rows);
  const Placement& placement = layout_[index];
  for (const Slice& slice : placement.own_rows(first, rows.dim(0))) try {
      set_own(index, slice, rows.narrow(0, slice.whole - first, slice.count));
    } catch (const Error& error) {
      if (!parameters_[index].scales.defined()) throw;
      fail("{}, from row {} on: {}", name, slice.whole, error.what());
    }
}

void ParameterStore::collect_nf4(size_t index, int64_t first, const Tensor& rows) {
  FourBits& own = *four_bits_[index];
  const int64_t end = first + rows.dim(0);
  int64_t begin = 0;  // of a source
  for (const WeightSource& source : spec(index).sources) {
    const int64_t from = std::max(first, begin), until = std::min(end, begin + source.rows);
    const primitives::Nf4Part part = nf4_part(layout_[index], begin, source.rows);
    if (from < until && !part.here.empty()) {
      if (from == begin) own.filled = 0;
      invariant(own.filled == from - begin, "rows of a matrix in nf4 come from the first to the last");
      if (from == begin)
        own.values = Tensor::empty({source.rows, rows.dim(1)}, rows.dtype(), MemoryTag::kWorkspace);
      own.values.narrow(0, own.filled, until - from).copy_from(rows.narrow(0, from - first, until - from));
      own.filled += until - from;
      if (own.filled == source.rows) {
        set_codes(index, part, quant::encode_nf4(source.name, own.values, own.matrix.is_double()));
        own.values = {};
      }
    }
    begin += source.rows;
  }
}

bool ParameterStore::set_nf4(std::string_view name, int64_t first, const quant::Nf4& matrix) {
  const size_t index = index_of(name);
  if (!four_bits_[index]) return false;
  changed();
  const primitives::Nf4Part part = nf4_part(layout_[index], first, matrix.codes.dim(0));
  if (!part.here.empty())
    set_codes(index, part, quant::with_magnitudes(name, matrix, four_bits_[index]->matrix.is_double()));
  return true;
}

// All magnitudes stay here; of codes that come and go their part does.
void ParameterStore::set_codes(size_t index, const primitives::Nf4Part& part, const quant::Nf4& encoded) {
  const Placement& placement = layout_[index];
  primitives::Nf4Matrix matrix = four_bits_[index]->matrix;
  const Slice columns = placement.held().columns;
  if (placement.is_flat())
    matrix.codes =
        Tensor::empty({matrix.starts.dim(0), columns.count / 2}, DType::kU8, MemoryTag::kWorkspace, device_);
  primitives::set_nf4(matrix, part, columns, encoded);
  if (!placement.is_flat()) return;
  for (const Slice& slice : part.here)
    set_part(own_[index], placement.first_element() / 2, slice.own,
             matrix.codes.narrow(0, slice.own, slice.count));
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
  gradients_ = dtype;
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
  for (OwnGradient& gradient : own_gradients_) gradient = {};
}

void ParameterStore::reset_gradients() {
  for (Parameter& parameter : parameters_)
    if (parameter.grad) parameter.grad->reset();
  for (OwnGradient& gradient : own_gradients_) gradient.filled = false;
}

}  // namespace temper::layers
