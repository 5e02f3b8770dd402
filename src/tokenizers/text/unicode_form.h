#pragma once
#include <string>
#include <string_view>

#include "tokenizers/text/alignment.h"

namespace temper::tokenizers {

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// The Unicode normalization forms, with the tables that the `tokenizers` library has (Unicode 9).
class UnicodeForm {
 public:
  explicit UnicodeForm(Form form) : form_(form) {}
  std::string normalize(std::string_view text) const;  // text is valid UTF-8
  AlignedText normalize_aligned(std::string_view text) const;
  // How much of the text's beginning surely stays as it is; what follows is normalized on its own.
  size_t unchanged_prefix(std::string_view text) const;

 private:
  Form form_;
};

}  // namespace temper::tokenizers
