#pragma once
#include "media/decoder.h"

namespace temper::media {

// Size and orientation of a JPEG, from its markers before the first scan (ITU T.81, annex B).
Header read_jpeg_header(const Encoded& file);

}  // namespace temper::media
