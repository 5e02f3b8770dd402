#include "tokenizers/tokens/byte_tokens.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/numbers.h"

namespace temper::tokenizers {

ByteTokens::ByteTokens(const Vocabulary& vocabulary) : ByteTokens() {
  for (size_t byte = 0; byte < ids_.size(); ++byte) {
    const auto id = vocabulary.find(fmt::format("<0x{:02X}>", byte));
    if (id && vocabulary.in_model(*id)) ids_[byte] = *id;
  }
}

bool ByteTokens::covers(std::string_view bytes) const {
  return std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return id(byte) != kNone; });
}

bool ByteTokens::complete() const { return std::find(ids_.begin(), ids_.end(), kNone) == ids_.end(); }

std::optional<char> byte_of_spelling(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || !spelling.ends_with('>')) return std::nullopt;
  std::string_view digits = spelling.substr(3, 2);
  if (digits[0] == '+') digits.remove_prefix(1);  // the `tokenizers` library reads <0x+A>, too
  const auto value = parse_integer_of<unsigned>(digits, 16);
  return value ? std::optional(static_cast<char>(*value)) : std::nullopt;
}

}  // namespace temper::tokenizers
