#pragma once
#include <string_view>

#include "base/parts/registry.h"
#include "media/orientation.h"
#include "media/picture.h"

// What rooms register: how files of one format are decoded.
namespace temper::media {

// The content of a file, and what messages call it: a path, or where a row has it.
struct Encoded {
  std::string_view bytes;
  std::string_view name;
};

struct Header {
  Size stored;  // before it is turned
  int orientation = kUpright;
};

// Errors name the file.
struct Decoder {
  bool (*recognizes)(std::string_view bytes);
  // Reads no pixels. A size of 0 is returned, not refused.
  Header (*header)(const Encoded& file);
  // As it is stored, in RGB as Pillow's convert("RGB") makes it: what lies under transparent places, grey in
  // all three colors. `header` is what the function above returned; its size is bounded.
  Picture (*decode)(const Encoded& file, const Header& header);
};

[[noreturn]] void fail_truncated(const Encoded& file);
// `why`: of the library.
[[noreturn]] void fail_damaged(const Encoded& file, std::string_view why);

// Whole numbers as they stand in headers, the first byte first or last; the bytes must be there.
int64_t big_endian(std::string_view bytes, size_t at, size_t count);
int64_t little_endian(std::string_view bytes, size_t at, size_t count);

}  // namespace temper::media
