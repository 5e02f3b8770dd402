#pragma once
#include <string>

#include "data/sources/mixture.h"

// What tests of rows with pictures need.
namespace temper::data {

constexpr int32_t kPad = 3005, kStart = 3006, kEnd = 3007;

const Tokenizer& seeing();  // qwen() with <|image_pad|>, <|vision_start|> and <|vision_end|>

// chatml() as the templates of Qwen2-VL to Qwen3-VL extend it for content in parts.
ChatRenderer chatml_with_pictures();

// A picture called "N.png" has N tokens; one called "missing.png" is an Error.
PictureTokens counted_pictures();

}  // namespace temper::data
