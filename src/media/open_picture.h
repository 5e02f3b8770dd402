#pragma once
#include <cstdint>
#include <string>

#include "media/decoder.h"

namespace temper::media {

struct ReadLimits {
  // Of a picture, known before anything is decoded. As Pillow, which refuses twice its MAX_IMAGE_PIXELS.
  int64_t most_pixels = 178'956'970;
};

// Of a file of pictures: more bytes are refused before they are read.
inline constexpr int64_t kMostFileBytes = int64_t{1} << 30;

// A picture's size as people see it, turned as its metadata say, without decoding it. The content tells the
// format, not the name. Errors name the file: empty, of no known format, of a format that this build does
// not read, cut off, damaged, without pixels, or with too many.
Size size_of_picture(const Encoded& file, const ReadLimits& limits = {});

// The same picture decoded, in RGB, and turned. Thread-safe.
Picture read_picture(const Encoded& file, const ReadLimits& limits = {});

// The content of a file.
std::string read_picture_file(const std::string& path);

}  // namespace temper::media
