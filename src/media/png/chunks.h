#pragma once
#include "media/decoder.h"

namespace temper::media {

inline constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1A\n";

// Size and orientation of a PNG, from its chunks IHDR, eXIf and iTXt (PNG, third edition).
Header read_png_header(const Encoded& file);

}  // namespace temper::media
