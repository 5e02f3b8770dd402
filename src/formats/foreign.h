#pragma once
#include <string>
#include <string_view>

namespace temper::formats {

// An error for content that is no text of rows, by what such files begin with: says what it is and what to
// do. `unpacked`: it was found inside another file.
void refuse_foreign(std::string_view content, const std::string& name, bool unpacked);

}  // namespace temper::formats
