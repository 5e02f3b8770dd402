#include "media/picture.h"

#include <cstring>
#include <new>

#include "base/error.h"
#include "base/text.h"

namespace temper::media {

Picture::Picture(Size size) : size_(size) {
  const auto count = static_cast<size_t>(bytes() + kReadableBehind);
  pixels_.reset(new (std::nothrow) uint8_t[count]);
  if (pixels_ == nullptr)
    throw OutOfMemory(fmt::format("no memory for the {} of a picture of {} x {} pixels",
                                  format_bytes(bytes()), size.width, size.height));
  std::memset(pixels_.get() + bytes(), 0, kReadableBehind);
}

}  // namespace temper::media
