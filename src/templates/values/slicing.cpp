#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"
#include "templates/values/traced_text.h"

namespace temper::templates {
namespace {

using ValueKind = Value::Kind;

// The positions that start:stop:step takes of `size`, as Python counts them.
std::vector<size_t> slice_positions(int64_t size, const Value& start, const Value& stop, const Value& step) {
  const auto bound = [&](const Value& value, int64_t otherwise, int64_t low, int64_t high) {
    if (value.is_none()) return otherwise;
    require_defined(value);
    if (!value.is_integer()) fail("slice indices must be integers or None, found {}", value.type_name());
    const int64_t index = value.integer() < 0 ? value.integer() + size : value.integer();
    return std::clamp(index, low, high);
  };
  if (!step.is_none() && !step.is_integer())
    fail("slice indices must be integers or None, found {}", step.type_name());
  const int64_t width = step.is_none() ? 1 : step.integer();
  if (width == 0) fail("slice step cannot be zero");
  const bool forward = width > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? size : size - 1;
  const int64_t from = bound(start, forward ? 0 : size - 1, low, high);
  const int64_t to = bound(stop, forward ? size : -1, low, high);
  std::vector<size_t> positions;
  for (int64_t i = from; forward ? i < to : i > to;) {
    positions.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, width, &i)) break;
  }
  return positions;
}

}  // namespace

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  const auto positions = [&](size_t size) {
    return slice_positions(static_cast<int64_t>(size), start, stop, step);
  };
  if (value.is_string()) {
    std::vector<std::string_view> characters;
    for (std::string_view rest = value.text(); !rest.empty(); rest.remove_prefix(characters.back().size()))
      characters.push_back(rest.substr(0, next_utf8(rest).size));
    TracedText out;
    for (const size_t i : positions(characters.size())) out.add_part(value, characters[i]);
    return out.take(value.is_markup());
  }
  if (value.is_range()) fail("slices of a range are not supported; add |list before the slice");
  if (!value.is(ValueKind::kList) && !value.is(ValueKind::kTuple)) fail("{} has no slices", describe(value));
  List out;
  for (const size_t i : positions(value.items().size())) out.push_back(value.items()[i]);
  return value.is(ValueKind::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

}  // namespace temper::templates
