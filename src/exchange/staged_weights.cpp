#include "exchange/staged_weights.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "checkpoints/names.h"

namespace temper::exchange {
StagedWeights::StagedWeights(const layers::ParameterStore& parameters, Names names)
    : parameters_(parameters) {
  if (parameters.layout().mesh().size() > 1)
    fail("[weights] this process holds a part of the model; weights are taken by one that has all of it");
  if (parameters.device().type != DeviceType::kCpu)
    fail("[weights] the model is not in the CPU's memory; weights are taken by models with --device cpu");
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].scales.defined())
      fail("[weights] {} is kept in 8 or 4 bits; weights are taken by models without --base-dtype",
           parameters.spec(i).name);
  for (const auto& [name, target] : targets_of(parameters.table(), names)) targets_.emplace(name, target);
  elements_.resize(parameters.size());
  forms_.resize(parameters.size());
  staged_.resize(parameters.size());
}

void StagedWeights::Coverage::add(const std::string& name, int64_t begin, int64_t size) {
  const int64_t end = begin + size;
  auto next = ranges.lower_bound(begin);
  const auto before = next == ranges.begin() ? ranges.end() : std::prev(next);
  if ((next != ranges.end() && next->first < end) || (before != ranges.end() && before->second > begin))
    fail("[weights] elements from {} on of '{}' came twice; each is sent once, by one rank", begin, name);
  count += size;
  int64_t last = end;
  if (next != ranges.end() && next->first == end) {
    last = next->second;
    ranges.erase(next);
  }
  if (before != ranges.end() && before->second == begin)
    before->second = last;
  else
    ranges.emplace(begin, last);
}

void StagedWeights::take(const std::string& name, const checkpoints::HeldElements& elements,
                         const Tensor& values) {
  const auto found = targets_.find(name);
  if (found == targets_.end()) {
    const WeightTable& table = parameters_.table();
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
    fail("[weights] '{}' came beside another form of {}; send stacked tensors or single ones", name,
         parameters_.spec(target.parameter).name);
  forms_[target.parameter] = form;
  Coverage& coverage = came_[key];
  for (const Slice& run : elements.runs) coverage.add(name, run.whole, run.count);
  scatter(target, elements, values);
  elements_[target.parameter] += values.numel();
  bytes_taken_ += values.bytes();
}

void StagedWeights::scatter(const Target& target, const checkpoints::HeldElements& elements,
                            const Tensor& values) {
  Tensor& staged = staged_[target.parameter];
  const Tensor& kept = parameters_[target.parameter].value;
  if (!staged.defined()) staged = Tensor::empty({kept.numel()}, kept.dtype(), MemoryTag::kWorkspace);
  if (target.order.is_same()) {
    for (const Slice& run : elements.runs)
      staged.narrow(0, target.first + run.whole, run.count).copy_from(values.narrow(0, run.own, run.count));
    return;
  }
  const Tensor converted = values.to(staged.dtype(), MemoryTag::kWorkspace);
  visit_float(staged.dtype(), [&]<class T>() {
    T* const to = staged.data<T>() + target.first;
    const T* const from = converted.data<T>();
    for (const Slice& run : elements.runs)
      for (int64_t i = 0; i < run.count; ++i) to[target.order(run.whole + i)] = from[run.own + i];
  });
}

void StagedWeights::check_whole() const {
  std::vector<std::string> missing;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const WeightSpec& spec = parameters_.spec(i);
    if (elements_[i] == spec.shape.numel()) continue;
    for (const auto& [name, target] : targets_) {
      if (target.parameter != i || target.stacked != (forms_[i] == 2)) continue;
      const auto came = came_.find(name);
      const int64_t count = came == came_.end() ? 0 : came->second.count;
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
}

void StagedWeights::publish(layers::ParameterStore& parameters) const {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& value = parameters[i].value;
    value.copy_from(staged_[i].reshape(value.shape()));
  }
  parameters.changed();
}

}  // namespace temper::exchange
