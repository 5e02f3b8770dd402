#include "exchange/element_order.h"

#include "checkpoints/file_forms.h"

namespace temper::exchange {
namespace {

// As checkpoints::from_file() has it.
ElementOrder order_of(const WeightSpec& spec, int64_t rows) {
  const int64_t columns = spec.shape.numel() / spec.shape[0], count = rows * columns;
  if (const int64_t experts = spec.experts_in_files; experts > 0) {
    const int64_t halves = spec.alternating ? 2 : 1, each = rows / experts;
    return {experts, columns, each / halves, halves};
  }
  if (spec.transposed_rows > 1) return {1, count / spec.transposed_rows, 1, spec.transposed_rows};
  if (spec.transposed && spec.transposed_rows == 0) return {1, columns, 1, rows};
  return {1, count, 1, 1};
}

}  // namespace

std::vector<std::pair<std::string_view, Target>> targets_of(const WeightTable& table, Names names) {
  std::vector<std::pair<std::string_view, Target>> targets;
  for (size_t i = 0; i < table.specs().size(); ++i) {
    const WeightSpec& spec = table.specs()[i];
    if (names == Names::kPacked) {
      targets.emplace_back(spec.name, Target{i, spec.shape, 0, {1, spec.shape.numel(), 1, 1}, false});
      continue;
    }
    int64_t row = 0;
    for (const WeightSource& source : spec.sources) {
      const int64_t columns = spec.shape.numel() / spec.shape[0];
      targets.emplace_back(source.name, Target{i, checkpoints::shape_in_files(spec, source.rows),
                                               row * columns, order_of(spec, source.rows), false});
      row += source.rows;
    }
    if (!spec.stacked.empty())
      targets.emplace_back(spec.stacked,
                           Target{i, spec.stacked_shape, 0, {1, spec.shape.numel(), 1, 1}, true});
  }
  return targets;
}

}  // namespace temper::exchange
