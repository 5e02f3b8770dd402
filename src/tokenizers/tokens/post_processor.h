#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json/json.h"

namespace temper::tokenizers {

// What stands before and after the text when special tokens are asked for.
struct PostProcessor {
  std::vector<int32_t> before, after;
  static PostProcessor from_json(const Json& json, std::string_view where);
};

}  // namespace temper::tokenizers
