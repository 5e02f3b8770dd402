#include "data/rows/token_rows.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "data/rows/pack.h"

namespace temper::data {
namespace {

std::vector<int32_t> integers(const Json& list, const std::string& field, int32_t least, int32_t most) {
  if (!list.is_array()) fail("{} must be an array of integers, found {}", field, list.kind_name());
  std::vector<int32_t> out;
  out.reserve(list.as_array().size());
  for (const Json& value : list.as_array()) {
    if (!value.is_int()) fail("{}[{}] must be an integer, found {}", field, out.size(), value.kind_name());
    if (value.as_int() < least || value.as_int() > most)
      fail("{}[{}] is {}, expected {} to {}", field, out.size(), value.as_int(), least, most);
    out.push_back(static_cast<int32_t>(value.as_int()));
  }
  return out;
}

// As many as there are ids; empty where the row has no such field.
std::vector<int32_t> beside_ids(const Json& row, const std::string& field, size_t count, int32_t least,
                                int32_t most) {
  const Json* list = field_of(row, field);
  if (!list) return {};
  std::vector<int32_t> values = integers(*list, field, least, most);
  if (values.size() != count)
    fail("{} has {} entries, input_ids has {}; expected one for each id", field, values.size(), count);
  return values;
}

void check_labels(const std::vector<int32_t>& labels, const std::vector<int32_t>& ids) {
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != kIgnore && labels[i] != ids[i])
      fail("labels[{}] is {}, where input_ids has {}; expected the same id or -100{}", i, labels[i], ids[i],
           i + 1 < ids.size() && labels[i] == ids[i + 1]
               ? " (they seem to be shifted: each label is at the position of its own token)"
               : "");
}

// What attention_mask leaves: one run of tokens.
std::pair<size_t, size_t> attended(const std::vector<int32_t>& mask, size_t count) {
  const auto first = std::find(mask.begin(), mask.end(), 1);
  const auto end = std::find(mask.rbegin(), mask.rend(), 1).base();
  if (mask.empty()) return {0, count};
  if (first == mask.end()) fail("attention_mask has no 1; expected tokens that are not padding");
  if (const auto gap = std::find(first, end, 0); gap != end)
    fail("attention_mask[{}] is 0 between tokens; expected zeros at the ends alone, where padding is",
         gap - mask.begin());
  return {static_cast<size_t>(first - mask.begin()), static_cast<size_t>(end - mask.begin())};
}

// A row is one document: positions that restart in it would be those of several.
void check_positions(const std::vector<int32_t>& positions, size_t begin, size_t end) {
  for (size_t i = begin; i < end && !positions.empty(); ++i)
    if (positions[i] != static_cast<int32_t>(i - begin))
      fail("position_ids[{}] is {}, expected {}: a row is one document{}", i, positions[i], i - begin,
           positions[i] == 0 ? "; give each document a row of its own, Temper packs them" : "");
}

}  // namespace

Example read_tokens(const Json& row, int64_t vocab_size, LossOn loss) {
  const auto largest = static_cast<int32_t>(vocab_size - 1);
  const std::vector<int32_t> ids = integers(required_field(row, "input_ids"), "input_ids", 0, largest);
  if (ids.empty()) fail("input_ids is empty, expected at least one token");
  const std::vector<int32_t> labels = beside_ids(row, "labels", ids.size(), kIgnore, largest);
  const std::vector<int32_t> mask = beside_ids(row, "attention_mask", ids.size(), 0, 1);
  const auto [begin, end] = attended(mask, ids.size());
  check_labels(labels, ids);
  check_positions(beside_ids(row, "position_ids", ids.size(), 0, std::numeric_limits<int32_t>::max()), begin,
                  end);
  Example example;
  for (size_t i = begin; i < end; ++i) {
    example.ids.push_back(ids[i]);
    example.loss_mask.push_back(labels.empty() || loss == LossOn::kAll || labels[i] != kIgnore);
  }
  return example;
}

}  // namespace temper::data
