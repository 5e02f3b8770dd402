#include "quantizers/quantizer_parts.h"

#include <algorithm>

#include "base/error.h"
#include "quant/groups.h"

namespace temper::quantizers {
namespace {

[[noreturn]] void refuse(const PlannedQuantizer& whole, const std::string& why) {
  fail(
      "[quantize] {} has an amax per {}, and {}: divide it by fewer ranks (parallel.tensor), or choose "
      "another "
      "format",
      whole.name, whole.groups(), why);
}

void check_columns(const PlannedQuantizer& whole, const Slice& columns) {
  int64_t unit = whole.format.has_blocks() ? whole.format.block : 1;
  if (whole.kind.sharing == Sharing::kBlock || whole.kind.sharing == Sharing::kTile) unit = whole.kind.block;
  if (columns.whole % unit != 0 || columns.count % unit != 0)
    refuse(whole, fmt::format("a rank holds {} columns from {} on", columns.count, columns.whole));
  if (whole.of_input && whole.kind.sharing == Sharing::kRow)
    refuse(whole, fmt::format("a rank reads {} of a token's columns", columns.count));
}

void check_tiles(const PlannedQuantizer& whole, const std::vector<Slice>& rows) {
  const int64_t unit = whole.kind.block;
  for (const Slice& slice : rows)
    if (slice.whole % unit != 0 || slice.own % unit != 0 || slice.count % unit != 0)
      refuse(whole, fmt::format("a rank holds {} rows from {} on", slice.count, slice.whole));
}

// The row of the whole for each that the rank holds.
std::vector<int64_t> rows_of(const std::vector<Slice>& slices) {
  std::vector<int64_t> rows;
  for (const Slice& slice : slices)
    for (int64_t i = 0; i < slice.count; ++i) {
      rows.resize(
          static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(rows.size()), slice.own + i + 1)));
      rows[static_cast<size_t>(slice.own + i)] = slice.whole + i;
    }
  return rows;
}

// Of an input of experts those that have rows of the weight here.
void take_experts(QuantizerPart& part, const std::vector<int64_t>& rows, int64_t rows_each) {
  PlannedQuantizer& own = part.own;
  const int64_t first = rows.front() / rows_each, count = rows.back() / rows_each - first + 1;
  if (count == own.experts) return;
  const bool apart = own.count == own.experts;
  own.experts = own.values[0] = count;
  if (!apart) return;
  own.count = count;
  own.amax = amax_shape_of(own);
  for (int64_t e = 0; e < count; ++e) part.elements.push_back(first + e);
}

// Of what a module gives, or of its keys or values, how many columns are here: rows of the weight.
int64_t outputs_here(const PlannedQuantizer& whole, const Placement& placement, const Placement::Part& held) {
  if (held.columns.count != placement.whole()[1])
    refuse(whole, "its outputs are sums of what several ranks give");
  // Keys and values are all held as often; of others counts would be those of no rank alone.
  const auto shared = placement.shared_by_tensor();
  if (whole.role == QuantizerRole::kOutput &&
      std::any_of(shared.begin(), shared.end(), [](const auto& run) { return run.ranks > 1; }))
    refuse(whole, "some of its outputs are on several ranks");
  const int64_t all = placement.whole()[0], columns = whole.values[1];
  const std::vector<int64_t> rows = rows_of(held.rows);
  // Values are the last rows, and keys those before.
  const int64_t first = whole.role == QuantizerRole::kKeys     ? all - 2 * columns
                        : whole.role == QuantizerRole::kValues ? all - columns
                                                               : 0;
  const int64_t here = std::count_if(rows.begin(), rows.end(),
                                     [&](int64_t row) { return row >= first && row < first + columns; });
  if (whole.format.has_blocks() && here % whole.format.block != 0)
    refuse(whole, fmt::format("a rank has {} of its columns", here));
  return here;
}

// Which factors of columns the rank needs: of its columns, and of its experts.
void take_columns(QuantizerPart& part, const PlannedQuantizer& whole, const Placement& placement) {
  const int64_t width = whole.values[whole.values.ndim() - 1];
  int64_t first = 0, experts = std::max<int64_t>(whole.experts, 1);
  Slice columns{0, 0, width};
  if (!placement.has_whole()) {
    const Placement::Part held = placement.held();
    columns = held.columns;
    if (whole.experts > 0) {
      const std::vector<int64_t> rows = rows_of(held.rows);
      const int64_t each = placement.whole()[0] / whole.experts;
      first = rows.front() / each;
      experts = rows.back() / each - first + 1;
    }
  }
  Shape& own = part.own.pre_quant_scale;
  if (own.ndim() == 3) own[0] = experts;
  own[own.ndim() - 1] = columns.count;
  for (int64_t e = first; e < first + experts; ++e)
    for (int64_t c = 0; c < columns.count; ++c) part.columns.push_back(e * width + columns.whole + c);
}

}  // namespace

QuantizerPart part_of(const PlannedQuantizer& whole, const Placement& placement) {
  QuantizerPart part{whole, {}};
  if (!placement.is_here()) return part;
  if (whole.scales_columns()) take_columns(part, whole, placement);
  if (placement.has_whole()) return part;
  const Placement::Part held = placement.held();
  PlannedQuantizer& own = part.own;
  const int dims = whole.values.ndim();
  if (whole.role > QuantizerRole::kInput) {
    own.values[1] = outputs_here(whole, placement, held);
    return part;
  }
  if (held.columns.count != whole.values[dims - 1]) check_columns(whole, held.columns);
  own.values[dims - 1] = held.columns.count;
  if (whole.of_input) {  // of the same amax: each rank sees some of what it is of
    if (whole.experts > 0) take_experts(part, rows_of(held.rows), placement.whole()[0] / whole.experts);
    return part;
  }
  if (whole.kind.sharing == Sharing::kTile) check_tiles(whole, held.rows);
  const std::vector<int64_t> rows = rows_of(held.rows);
  const auto count = static_cast<int64_t>(rows.size());
  if (whole.experts > 0) {
    const int64_t each = whole.values[1];
    own.experts = rows.back() / each - rows.front() / each + 1;
    own.values[0] = own.experts;
    own.values[1] = count / own.experts;
    if (whole.count == whole.experts) own.count = own.experts;
  } else {
    own.values[0] = count;
  }
  own.amax = amax_shape_of(own);
  if (!whole.keeps_amax()) return part;
  const quant::Groups groups = quant::groups_of(whole.name, whole.values, whole.amax),
                      owns = quant::groups_of(whole.name, own.values, own.amax);
  const int64_t rows_each = owns.experts * owns.rows / (owns.expert_groups * owns.row_groups);
  for (int64_t group = 0; group < owns.expert_groups * owns.row_groups; ++group) {
    const int64_t row = rows[static_cast<size_t>(group * rows_each)];
    for (int64_t c = 0; c < owns.column_groups; ++c)
      part.elements.push_back(groups.first(row) + (held.columns.whole + c * owns.width()) / groups.width());
  }
  return part;
}

}  // namespace temper::quantizers
