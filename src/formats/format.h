#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/registry.h"
#include "formats/row_file.h"

// What rooms register: a layout of rows in a text, or a conversion that makes such a text of another file.
namespace temper::formats {

// Asked in the order of src/formats/CMakeLists.txt, the first that recognizes a text reads it.
struct RowFormat {
  bool (*recognizes)(std::string_view text);
  std::unique_ptr<RowFile> (*open)(const OpenedFile& file);
};

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace temper::formats
