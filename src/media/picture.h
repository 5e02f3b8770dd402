#pragma once
#include <cstdint>

#include "base/unset_memory.h"

namespace temper::media {

struct Size {
  int64_t width = 0, height = 0;  // in pixels
  bool operator==(const Size&) const = default;
};

// Pixels of four bytes: red, green, blue and one without meaning. Rows from the top, without gaps between
// them.
class Picture {
 public:
  static constexpr int64_t kPixelBytes = 4;
  static constexpr int kColors = 3;  // of them, the first
  // Behind the last pixel this many bytes can be read, so that vectors may end outside of a row.
  static constexpr int64_t kReadableBehind = 64;

  Picture() = default;
  explicit Picture(Size size);  // its pixels are not set; OutOfMemory where they find no place

  Size size() const { return size_; }
  int64_t width() const { return size_.width; }
  int64_t height() const { return size_.height; }
  int64_t bytes() const { return size_.width * size_.height * kPixelBytes; }
  uint8_t* row(int64_t y) { return pixels_.get() + y * size_.width * kPixelBytes; }
  const uint8_t* row(int64_t y) const { return pixels_.get() + y * size_.width * kPixelBytes; }

 private:
  Size size_;
  UnsetArray<uint8_t> pixels_;  // [height, width, 4]
};

}  // namespace temper::media
