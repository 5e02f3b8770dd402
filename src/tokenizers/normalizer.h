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

 private:
  bool nfc_ = false;
};

}  // namespace temper::tokenizers
