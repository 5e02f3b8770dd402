#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/parts/registry.h"
#include "formats/packed_file.h"
#include "formats/row_file.h"
#include "formats/row_writer.h"

// What rooms register: a layout of rows in a text, or a conversion that makes such a text of another file.
namespace temper::formats {

// Asked in the order of src/formats/CMakeLists.txt, the first that recognizes a text reads it.
struct RowFormat {
  bool (*recognizes)(std::string_view text, std::string_view name);  // its name, for text that says nothing
  std::unique_ptr<RowFile> (*open)(const OpenedFile& file);
};

// What a conversion writes: the text of the file, with its lines; or one row a line, where the file had none.
enum class RowsWritten { kText, kLines };

// Done once per content; what it writes is kept in the cache (row_cache.h).
struct Conversion {
  bool (*recognizes)(std::string_view content);
  int64_t (*least_bytes)(const PackedFile& file);  // convert will write no fewer
  void (*convert)(const PackedFile& file, RowWriter& rows);
  int version = 1;  // of what convert writes: another one is converted again
  RowsWritten writes = RowsWritten::kText;
};

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace temper::formats
