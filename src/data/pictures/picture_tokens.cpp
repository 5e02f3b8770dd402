#include "data/pictures/picture_tokens.h"

#include <limits>

#include "base/error.h"

namespace temper::data {

PictureTokens picture_tokens_of(const Json& config, const std::string& where) {
  const auto id = [&](std::string_view key) {
    const Json* const value = config.find(key);
    if (value == nullptr || !value->is_int() || value->as_int() < 0 ||
        value->as_int() > std::numeric_limits<int32_t>::max())
      fail("[{}] {} is {}, expected the id of a token", where, key, value ? value->dump() : "missing");
    return static_cast<int32_t>(value->as_int());
  };
  return {id("image_token_id"), id("vision_start_token_id"), id("vision_end_token_id")};
}

}  // namespace temper::data
