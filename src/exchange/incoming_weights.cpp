#include "exchange/incoming_weights.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "checkpoints/files/names.h"
#include "device/facts.h"

namespace temper::exchange {
namespace {

// Elements in a row, from `begin` on, to their places in a view, counted in its dimensions from `dim` on:
// whole rows at once, and what is cut of one before and behind them.
void copy_range(const Tensor& view, int dim, int64_t begin, const Tensor& values) {
  const int64_t count = values.numel();
  int64_t wide = 1;
  for (int i = dim + 1; i < view.ndim(); ++i) wide *= view.dim(i);
  int64_t row = begin / wide, done = 0;
  const int64_t cut = begin % wide;
  if (cut > 0) {
    done = std::min(count, wide - cut);
    copy_range(view.narrow(dim, row++, 1), dim + 1, cut, values.narrow(0, 0, done));
  }
  if (const int64_t rows = (count - done) / wide; rows > 0) {
    const Tensor whole = view.narrow(dim, row, rows);
    whole.copy_from(values.narrow(0, done, rows * wide).reshape(whole.shape()));
    done += rows * wide;
    row += rows;
  }
  if (done < count) copy_range(view.narrow(dim, row, 1), dim + 1, 0, values.narrow(0, done, count - done));
}

// Some rows of columns to their places in a row of elements. The last row of a matrix need not be whole.
void copy_columns(const Tensor& all, const checkpoints::Columns& columns, int64_t row, int64_t rows,
                  const Tensor& values) {
  const int64_t count = columns.first.count, begin = columns.first.whole + row * columns.distance;
  const Tensor from = values.narrow(0, columns.first.own + row * count, rows * count);
  const int64_t whole = begin + rows * columns.distance <= all.numel() ? rows : rows - 1;
  if (whole > 0) {
    const Tensor to =
        all.narrow(0, begin, whole * columns.distance).reshape({whole, columns.distance}).narrow(1, 0, count);
    to.copy_from(from.narrow(0, 0, whole * count).reshape(to.shape()));
  }
  if (whole < rows)
    all.narrow(0, begin + whole * columns.distance, count).copy_from(from.narrow(0, whole * count, count));
}

int64_t width_of(const Shape& shape) {
  return shape.ndim() == 0 ? 1 : std::max<int64_t>(1, shape[shape.ndim() - 1]);
}

}  // namespace

Loading loading_for(std::string_view hardware) {
  return hardware == hardware::kNpu ? Loading::kDirect : Loading::kStaged;
}

IncomingWeights::IncomingWeights(layers::ParameterStore& parameters, Names names, Loading loading,
                                 quantizers::Quantizers* quantizers)
    : parameters_(parameters), quantizers_(quantizers), scales_(scales_of(quantizers)), loading_(loading) {
  if (parameters.layout().ranks() > 1)
    fail("[weights] this process holds a part of the model; weights are taken by one that has all of it");
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].scales.defined())
      fail("[weights] {} is kept in 8 or 4 bits; weights are taken by models without --base-dtype",
           parameters.spec(i).name);
  for (const auto& [name, target] : targets_of(parameters.table(), names)) targets_.emplace(name, target);
  const size_t count = parameters.size() + scales_.size();
  for (size_t i = parameters.size(); i < count; ++i)
    targets_.emplace(name_of(i), Target{i, scales_[i - parameters.size()].values.shape(), 0, {}, false});
  elements_.resize(count);
  forms_.resize(count);
  staged_.resize(count);
}

const std::string& IncomingWeights::name_of(size_t index) const {
  return index < parameters_.size() ? parameters_.spec(index).name : scales_[index - parameters_.size()].name;
}

int64_t IncomingWeights::elements_of(size_t index) const {
  return index < parameters_.size() ? parameters_.spec(index).shape.numel()
                                    : scales_[index - parameters_.size()].values.numel();
}

void IncomingWeights::take(const std::string& sent_name, const checkpoints::HeldElements& elements,
                           const Tensor& values) {
  const WeightTable& table = parameters_.table();
  const std::string name = table.own_name(sent_name);
  const auto found = targets_.find(name);
  if (found == targets_.end()) {
    if (!table.ignored().contains(name) && !table.keeps(name)) unknown_.insert(name);
    return;
  }
  const auto& [key, target] = *found;
  if (elements.whole != target.shape)
    fail("[weights] '{}' is {}, expected {}; send the weights of the same model", name,
         to_string(elements.whole), to_string(target.shape));
  if (!is_float(values.dtype()))
    fail("[weights] '{}' is {}, expected float32, bfloat16 or float16", name, to_string(values.dtype()));
  const int8_t form = target.stacked ? 2 : 1;
  if (forms_[target.parameter] != 0 && forms_[target.parameter] != form)
    fail("[weights] '{}' came in addition to another form of {}; send stacked tensors or single ones", name,
         name_of(target.parameter));
  if (target.parameter >= parameters_.size() && values.dtype() != DType::kF32)
    fail("[weights] '{}' is {}, expected float32", name, to_string(values.dtype()));
  forms_[target.parameter] = form;
  Coverage& coverage = came_.try_emplace(key, width_of(target.shape)).first->second;
  const std::vector<checkpoints::Columns> columns = checkpoints::columns_of(elements.runs);
  for (const checkpoints::Columns& each : columns)
    coverage.add(name, each.first.whole, each.first.count, each.distance, each.times);
  scatter(target, columns, values);
  elements_[target.parameter] += values.numel();
  bytes_taken_ += values.bytes();
}

Tensor IncomingWeights::destination(size_t index) {
  const bool is_parameter = index < parameters_.size();
  const Tensor& kept = is_parameter ? parameters_[index].value : scales_[index - parameters_.size()].values;
  if (is_parameter && loading_ == Loading::kDirect) return kept.reshape({kept.numel()});
  Tensor& staged = staged_[index];
  if (!staged.defined())
    staged = Tensor::empty({kept.numel()}, kept.dtype(), MemoryTag::kWorkspace, kept.device());
  return staged;
}

// What is converted on its way to another device takes memory there and back: no more at once than came.
void IncomingWeights::scatter(const Target& target, const std::vector<checkpoints::Columns>& columns,
                              const Tensor& values) {
  const auto& [a, b, c, d] = target.order;
  const Tensor all = destination(target.parameter).narrow(0, target.first, target.shape.numel());
  const Tensor view = target.order.is_same() ? all : all.reshape({a, d, c, b}).transpose(1, 3);
  const int64_t most = std::max<int64_t>(1, values.bytes() / size_of(all.dtype()));
  for (const checkpoints::Columns& each : columns) {
    const auto& [whole, own, count] = each.first;
    if (target.order.is_same() && each.times > 1 && count <= most) {
      const int64_t rows = most / count;
      for (int64_t row = 0; row < each.times; row += rows)
        copy_columns(all, each, row, std::min(rows, each.times - row), values);
      continue;
    }
    for (int64_t row = 0; row < each.times; ++row)
      for (int64_t at = 0; at < count; at += most)
        copy_range(view, 0, whole + row * each.distance + at,
                   values.narrow(0, own + row * count + at, std::min(most, count - at)));
  }
}

void IncomingWeights::check_whole() const {
  std::vector<std::string> missing;
  for (size_t i = 0; i < elements_.size(); ++i) {
    if (elements_[i] == elements_of(i)) continue;
    for (const auto& [name, target] : targets_) {
      if (target.parameter != i || target.stacked != (forms_[i] == 2)) continue;
      const auto came = came_.find(name);
      const int64_t count = came == came_.end() ? 0 : came->second.count();
      if (count == target.shape.numel()) continue;
      missing.push_back(count == 0 ? fmt::format("'{}'", name)
                                   : fmt::format("'{}' ({} of {} elements)", name,
                                                 target.shape.numel() - count, target.shape.numel()));
    }
  }
  std::sort(missing.begin(), missing.end());
  if (!missing.empty())
    fail("[weights] {} tensors did not come, or not all of them: {}", missing.size(),
         checkpoints::list_some(missing));
  for (size_t i = parameters_.size(); i < elements_.size(); ++i) check_scales(name_of(i), staged_[i]);
}

void IncomingWeights::publish() const {
  if (loading_ == Loading::kStaged)
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& value = parameters_[i].value;
      value.copy_from(staged_[i].reshape(value.shape()));
    }
  for (size_t i = 0; i < scales_.size(); ++i)
    scales_[i].values.copy_from(staged_[parameters_.size() + i].reshape(scales_[i].values.shape()));
  if (quantizers_ != nullptr) {
    quantizers_->take_own();
    quantizers_->set_ready();
    quantizers_->set_mode(quantizers::QuantizerMode::kFake);
  }
  parameters_.changed();
}

}  // namespace temper::exchange
