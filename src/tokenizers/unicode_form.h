#pragma once
#include <string>
#include <string_view>

#include "tokenizers/alignment.h"

namespace temper::tokenizers {

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// The Unicode normalization forms, with the tables that the `tokenizers` library has (Unicode 9).
class UnicodeForm {
 public:
  explicit UnicodeForm(Form form) : form_(form) {}
  std::string normalize(std::string_view text) const;  // text is valid UTF-8
  AlignedText normalize_aligned(std::string_view text) const;

 private:
  bool surely_normal(std::string_view text) const;
  Form form_;
};

}  // namespace temper::tokenizers
