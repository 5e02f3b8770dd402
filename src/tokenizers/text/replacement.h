#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "tokenizers/text/alignment.h"
#include "tokenizers/text/pattern.h"

namespace temper::tokenizers {

// Replaces what a pattern matches, as the Replace of normalizers and of decoders.
class Replacement {
 public:
  Replacement(const Json& component, const std::string& place);
  AlignedText run(std::string_view text, bool aligned) const;

 private:
  std::optional<ByteSpan> find(std::string_view text, size_t from) const;
  std::string text_;  // looked for, unless there is a pattern
  std::optional<Pattern> pattern_;
  std::string content_;
};

}  // namespace temper::tokenizers
