// WebP by libwebp: of an animation the first frame.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "base/error.h"
#include "media/decoder.h"

namespace temper::media {
namespace {

constexpr size_t kFileHeader = 12, kChunkHeader = 8;  // "RIFF", size, "WEBP"; type and size

const uint8_t* data_of(std::string_view bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

bool recognizes(std::string_view bytes) {
  return bytes.size() >= kFileHeader && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP";
}

// Chunks of the container, which have an even number of bytes.
int orientation_of(std::string_view bytes) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  Orientation orientation;
  for (size_t at = kFileHeader; at + kChunkHeader <= bytes.size();) {
    const auto size = static_cast<size_t>(little_endian(bytes, at + 4, 4));
    const std::string_view type = bytes.substr(at, 4);
    std::string_view data = bytes.substr(at + kChunkHeader, size);
    if (type == "EXIF") {
      if (data.starts_with(kExif)) data.remove_prefix(kExif.size());
      orientation.add_exif(data);
    }
    if (type == "XMP ") orientation.add_xmp(data);
    at += kChunkHeader + size + size % 2;
  }
  return orientation.value();
}

Header read_header(const Encoded& file) {
  if (static_cast<size_t>(little_endian(file.bytes, 4, 4)) + kChunkHeader > file.bytes.size())
    fail_truncated(file);
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(file.bytes), file.bytes.size(), &features) != VP8_STATUS_OK)
    fail_damaged(file, "its header is not that of a WebP");
  return {{features.width, features.height}, orientation_of(file.bytes)};
}

Picture decode_frame(const Encoded& file, const Header& header) {
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const WebPData data = {data_of(file.bytes), file.bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  WebPAnimInfo info;
  uint8_t* pixels = nullptr;
  int time = 0;
  if (decoder == nullptr || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0 ||
      WebPAnimDecoderGetNext(decoder.get(), &pixels, &time) == 0)
    fail_damaged(file, "libwebp does not say why");
  if (Size{info.canvas_width, info.canvas_height} != header.stored)
    fail_damaged(file, "its canvas and its frame differ in size");
  Picture picture(header.stored);
  std::memcpy(picture.row(0), pixels, static_cast<size_t>(picture.bytes()));
  return picture;
}

Picture decode(const Encoded& file, const Header& header) {
  WebPBitstreamFeatures features;
  WebPGetFeatures(data_of(file.bytes), file.bytes.size(), &features);
  if (features.has_animation != 0) return decode_frame(file, header);
  Picture picture(header.stored);
  if (WebPDecodeRGBAInto(data_of(file.bytes), file.bytes.size(), picture.row(0),
                         static_cast<size_t>(picture.bytes()),
                         static_cast<int>(picture.width() * Picture::kPixelBytes)) == nullptr)
    fail_damaged(file, "libwebp does not say why");
  return picture;
}

}  // namespace

void register_webp() { registry<Decoder>().add("webp", {recognizes, read_header, decode}); }

}  // namespace temper::media
