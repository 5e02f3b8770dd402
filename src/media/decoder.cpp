#include "media/decoder.h"

#include "base/error.h"
#include "base/shown.h"

namespace temper::media {

void fail_truncated(const Encoded& file) {
  fail("[{}] is truncated after {} bytes; get the whole file again, or leave it out", file.name,
       file.bytes.size());
}

void fail_damaged(const Encoded& file, std::string_view why) {
  fail("[{}] cannot be decoded: {}; get the file again, or save it again with another program", file.name,
       shown(why));
}

int64_t big_endian(std::string_view bytes, size_t at, size_t count) {
  int64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

int64_t little_endian(std::string_view bytes, size_t at, size_t count) {
  int64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace temper::media
