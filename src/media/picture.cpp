#include "media/picture.h"

#include <cstring>

namespace temper::media {

Picture::Picture(Size size)
    : size_(size), pixels_(unset_array<uint8_t>(bytes() + kReadableBehind, "a picture")) {
  std::memset(pixels_.get() + bytes(), 0, kReadableBehind);
}

}  // namespace temper::media
