#include "exchange/coverage.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace temper::exchange {

void Coverage::add(const std::string& name, int64_t begin, int64_t count, int64_t distance, int64_t times) {
  if (count == 0) return;
  const int64_t row = begin / width_, column = begin % width_;
  if (times > 1 && (distance != width_ || column + count > width_)) {
    for (int64_t i = 0; i < times; ++i) add(name, begin + i * distance, count);
    return;
  }
  if (column + count <= width_) return add_part(name, {column, column + count}, {row, row + times});
  // What is cut of a row before whole ones, those, and what is cut behind them.
  const int64_t first = column == 0 ? row : row + 1, end = begin + count, last = end / width_;
  if (column > 0) add_part(name, {column, width_}, {row, first});
  if (first < last) add_part(name, {0, width_}, {first, last});
  if (end % width_ > 0) add_part(name, {0, end % width_}, {last, last + 1});
}

void Coverage::add_part(const std::string& name, Interval columns, Interval rows) {
  for (const auto& [other, came] : rows_) {
    if (other.begin >= columns.end) break;
    if (other.end <= columns.begin) continue;
    const auto next = came.lower_bound(rows.begin);
    if ((next != came.end() && next->first < rows.end) ||
        (next != came.begin() && std::prev(next)->second > rows.begin))
      fail("[weights] elements from {} on of '{}' came twice; each is sent once, by one rank",
           rows.begin * width_ + columns.begin, name);
  }
  count_ += (columns.end - columns.begin) * (rows.end - rows.begin);
  Rows& came = rows_[columns];
  auto next = came.lower_bound(rows.begin);
  if (next != came.end() && next->first == rows.end) {
    rows.end = next->second;
    next = came.erase(next);
  }
  if (next != came.begin() && std::prev(next)->second == rows.begin)
    std::prev(next)->second = rows.end;
  else
    came.emplace(rows.begin, rows.end);
}

}  // namespace temper::exchange
