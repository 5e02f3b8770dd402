#include "data/rows/token_columns.h"

#include <algorithm>

namespace temper::data {

bool TokenColumns::fits(int64_t tokens) const {
  return std::all_of(kAll.begin(), kAll.end(), [&](const Kind& kind) {
    const Column& column = this->*kind.column;
    return column.empty() || std::ssize(column) == tokens;
  });
}

void TokenColumns::append(const TokenColumns& from, size_t token) {
  for (const auto& [column, unknown] : kAll)
    (this->*column).push_back((from.*column).empty() ? unknown : (from.*column)[token]);
}

void TokenColumns::append(const TokenColumns& from) {
  for (const auto& [column, unknown] : kAll)
    (this->*column).insert((this->*column).end(), (from.*column).begin(), (from.*column).end());
}

void TokenColumns::extend(int64_t tokens) {
  for (const auto& [column, unknown] : kAll)
    if (!(this->*column).empty()) (this->*column).resize(static_cast<size_t>(tokens), unknown);
}

}  // namespace temper::data
