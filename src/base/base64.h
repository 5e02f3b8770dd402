#pragma once
#include <string>
#include <string_view>

// RFC 4648, section 4: A to Z, a to z, 0 to 9, + and /.
namespace temper {

std::string encode_base64(std::string_view bytes);  // padded, in one line
// Line breaks are left out, and padding may be missing. An Error says which character does not belong there.
std::string decode_base64(std::string_view text);
std::string decode_base64(std::string_view text, std::string_view place);  // which errors name first

}  // namespace temper
