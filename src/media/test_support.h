#pragma once
#include <string>

#include "base/files.h"
#include "base/json/json.h"
#include "media/open_picture.h"
#include "tests/support/crc32.h"

namespace temper::media {

// tools/oracles/make_picture_cases.py wrote it.
inline std::string decoded_cases_folder() { return TEMPER_SOURCE_DIR "/tests/goldens/decoded_pictures"; }

// Of the bytes of red, green and blue.
inline int64_t crc32_of(const Picture& picture) {
  Crc32 crc;
  for (int64_t i = 0; i < picture.bytes(); ++i)
    if (i % Picture::kPixelBytes != 3) crc.add(picture.row(0)[i]);
  return crc.value();
}

}  // namespace temper::media
