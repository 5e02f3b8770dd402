#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace temper::tokenizers {

// What happens to the text before it is split: nothing, or Unicode normalization form C.
class Normalizer {
 public:
  static Normalizer from_json(const Json& json, std::string_view where);
  std::string normalize(std::string_view text) const;  // text is valid UTF-8

  // The same, as a view of the text where nothing changes and of the buffer where something does.
  std::string_view normalize(std::string_view text, std::string& buffer) const;

  // How much of the text's beginning stays as it is; what follows is normalized on its own.
  size_t unchanged_prefix(std::string_view text) const;

 private:
  bool nfc_ = false;
};

}  // namespace temper::tokenizers
