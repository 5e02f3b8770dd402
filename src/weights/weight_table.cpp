#include "weights/weight_table.h"

#include <algorithm>

#include "base/error.h"

namespace temper {

void WeightTable::add(WeightSpec spec) {
  int64_t rows = 0;
  for (size_t i = 0; i < spec.sources.size(); ++i) {
    rows += spec.sources[i].rows;
    const bool added = by_source_.emplace(spec.sources[i].name, std::pair(specs_.size(), i)).second;
    invariant(added, fmt::format("weight table: {} is declared twice", spec.sources[i].name));
  }
  if (!spec.stacked.empty()) {
    invariant(spec.stacked_shape.numel() == spec.shape.numel(),
              fmt::format("weight table: {} is not as large as {}", spec.stacked, spec.name));
    const bool added = by_source_.emplace(spec.stacked, std::pair(specs_.size(), spec.sources.size())).second;
    invariant(added, fmt::format("weight table: {} is declared twice", spec.stacked));
  }
  invariant(
      spec.shape.ndim() > 0 && rows == spec.shape[0],
      fmt::format("weight table: sources of {} fill {} rows of {}", spec.name, rows, to_string(spec.shape)));
  invariant(spec.axes.size() == static_cast<size_t>(spec.shape.ndim()),
            fmt::format("weight table: {} names {} axes for {}", spec.name, spec.axes.size(),
                        to_string(spec.shape)));
  for (const WeightAxis& axis : spec.axes)
    invariant(axes_.emplace(axis.name, axis).first->second == axis,
              fmt::format("weight table: {} divides axis {} as others do not", spec.name, axis.name));
  invariant(by_name_.emplace(spec.name, specs_.size()).second,
            fmt::format("weight table: {} is declared twice", spec.name));
  specs_.push_back(std::move(spec));
}

const WeightSpec* WeightTable::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &specs_[found->second];
}

WeightTable::Place WeightTable::find_source(std::string_view hf_name) const {
  const auto found = by_source_.find(std::string(hf_name));
  if (found == by_source_.end()) return {};
  const auto [spec_index, source_index] = found->second;
  const WeightSpec& spec = specs_[spec_index];
  if (source_index == spec.sources.size()) return {&spec, 0, spec.shape[0]};
  int64_t row = 0;
  for (size_t i = 0; i < source_index; ++i) row += spec.sources[i].rows;
  return {&spec, row, spec.sources[source_index].rows};
}

std::vector<WeightSource> WeightTable::sources_in_files(const WeightSpec& spec, bool stacked) {
  if (!stacked || spec.stacked.empty()) return spec.sources;
  return {{spec.stacked, spec.shape[0]}};
}

std::string WeightTable::own_name(std::string_view hf_name) const {
  return text_names_ ? name_in_table(hf_name) : std::string(hf_name);
}

std::string WeightTable::name_in_files(std::string_view own_name) const {
  return text_names_ ? temper::name_in_files(own_name, *text_names_) : std::string(own_name);
}

std::optional<DType> WeightTable::dtype_in_files(const WeightSpec& spec, std::optional<DType> model) const {
  if (!spec.dtype) return model;
  const auto read = read_dtypes_.find(spec.name);
  if (read == read_dtypes_.end()) return spec.dtype;
  return model && size_of(*model) > size_of(read->second) ? *model : read->second;
}

void WeightTable::tie(WeightSpec spec, std::string other) {
  const WeightSpec* whose = find(other);
  invariant(whose != nullptr && whose->shape == spec.shape && spec.sources.size() == 1 &&
                whose->sources.size() == 1 && find(spec.name) == nullptr,
            fmt::format("weight table: {} cannot be tied to {}", spec.name, other));
  ignore(spec.sources[0].name, "tied to " + whose->sources[0].name);
  tied_.push_back({std::move(spec), std::move(other)});
}

const WeightTable::Tied* WeightTable::find_tied(std::string_view name) const {
  const auto found =
      std::find_if(tied_.begin(), tied_.end(), [&](const Tied& tied) { return tied.spec.name == name; });
  return found == tied_.end() ? nullptr : &*found;
}

bool WeightTable::keeps(std::string_view hf_name) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&](const std::string& beginning) { return hf_name.starts_with(beginning); });
}

WeightTable::Place WeightTable::find_target(std::string_view hf_name) const {
  for (const Tied& tied : tied_)
    if (tied.spec.sources[0].name == hf_name) return {&tied.spec, 0, tied.spec.shape[0]};
  return find_source(hf_name);
}

}  // namespace temper
