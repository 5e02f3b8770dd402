#pragma once
#include <optional>

#include "media/decoder.h"

namespace temper::media {

// The usual kind of PNG, 8 bits of RGB or RGBA and not interlaced, unpacked at once by libdeflate: about
// three times as fast as libpng. None for other kinds, and for files with anything wrong, of which libpng
// says what it is. The sum at the end of the packed pixels is checked, those of chunks are not.
std::optional<Picture> decode_usual_png(const Encoded& file, const Header& header);

}  // namespace temper::media
