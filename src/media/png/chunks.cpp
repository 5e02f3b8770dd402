#include "media/png/chunks.h"

namespace temper::media {
namespace {

using namespace std::string_view_literals;

constexpr size_t kBeforeData = 8, kAfterData = 4;  // bytes of a chunk: length and type; checksum
constexpr size_t kSizes = 8;                       // of width and height in IHDR

struct Chunk {
  std::string_view type, data;
};

// The chunk at `at`, whose data may be cut off.
Chunk chunk_at(std::string_view bytes, size_t at) {
  const auto length = static_cast<size_t>(big_endian(bytes, at, 4));
  return {bytes.substr(at + 4, 4), bytes.substr(at + kBeforeData, length)};
}

// XMP in a text that is not compressed.
std::string_view xmp_of(std::string_view text) {
  constexpr std::string_view kName = "XML:com.adobe.xmp\0\0"sv;
  return text.starts_with(kName) ? text.substr(kName.size()) : std::string_view();
}

}  // namespace

Header read_png_header(const Encoded& file) {
  const std::string_view bytes = file.bytes;
  size_t at = kPngSignature.size();
  if (at + kBeforeData + kSizes > bytes.size()) fail_truncated(file);
  const Chunk first = chunk_at(bytes, at);
  if (first.type != "IHDR" || first.data.size() < kSizes) fail_damaged(file, "its first chunk is not IHDR");
  Header header;
  header.stored = {big_endian(first.data, 0, 4), big_endian(first.data, 4, 4)};
  Orientation orientation;
  // EXIF may stand behind the pixels.
  for (; at + kBeforeData <= bytes.size();) {
    const Chunk chunk = chunk_at(bytes, at);
    if (chunk.type == "eXIf") orientation.add_exif(chunk.data);
    if (chunk.type == "iTXt") orientation.add_xmp(xmp_of(chunk.data));
    at += kBeforeData + static_cast<size_t>(big_endian(bytes, at, 4)) + kAfterData;
  }
  header.orientation = orientation.value();
  return header;
}

}  // namespace temper::media
