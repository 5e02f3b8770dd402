#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat.h"

// Pictures in the texts of a row. While a row is read, a picture is one character of a text.
namespace temper::data {

// No text of people has it (check_characters).
inline constexpr char kPictureMark = '\0';

int64_t count_marks(std::string_view text);
int64_t count_marks(const Json::Array& messages);  // in their contents

// What stands before, between and behind the marks, without empty texts.
std::vector<std::string_view> texts_between_marks(std::string_view text);

// Gives the template a content with marks as it expects one with pictures: a list of parts {"type": "image"}
// and {"type": "text"}. `pad` is the token that the template writes once for each picture; an Error where a
// text has it more or fewer times.
ChatRenderer with_picture_parts(ChatRenderer render, std::string pad);

}  // namespace temper::data
