#include "tokenizers/unicode/code_point_table.h"

#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace temper::tokenizers {

CodePointTable::CodePointTable(const std::vector<uint8_t>& values) {
  invariant(values.size() == kCodePoints, "a table of code points has a value for each");
  std::unordered_map<std::string_view, uint16_t> known;
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  for (size_t i = 0; i < index_.size(); ++i) {
    const auto [entry, fresh] =
        known.emplace(std::string_view(bytes + i * kBlock, kBlock), static_cast<uint16_t>(known.size()));
    index_[i] = entry->second;
    if (fresh) blocks_.insert(blocks_.end(), &values[i * kBlock], &values[i * kBlock] + kBlock);
  }
}

}  // namespace temper::tokenizers
