#include "media/open_picture.h"

#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/parts/rooms.h"
#include "base/shown.h"
#include "base/text.h"

namespace temper::media {
namespace {

constexpr std::string_view kFormats = "JPEG, PNG or WebP";

// What files of other formats begin with, `at` bytes from their start; of formats with a room it says which.
struct Signature {
  size_t at;
  std::string_view bytes, name, room = {};
};

constexpr std::array<Signature, 15> kSignatures = {{{0, "\xFF\xD8\xFF", "JPEG", "jpeg"},
                                                    {0, "\x89PNG\r\n\x1A\n", "PNG", "png"},
                                                    {8, "WEBP", "WebP", "webp"},
                                                    {0, "GIF8", "GIF"},
                                                    {0, "BM", "BMP"},
                                                    {0, "II*", "TIFF"},
                                                    {0, std::string_view("MM\0*", 4), "TIFF"},
                                                    {0, "\xFF\x0A", "JPEG XL"},
                                                    {4, "JXL ", "JPEG XL"},
                                                    {4, "jP  ", "JPEG 2000"},
                                                    {4, "ftypavif", "AVIF"},
                                                    {4, "ftyphei", "HEIF"},
                                                    {4, "ftypmif1", "HEIF"},
                                                    {0, "<svg", "SVG"},
                                                    {0, "%PDF", "PDF"}}};

[[noreturn]] void fail_unknown(const Encoded& file) {
  if (file.bytes.empty()) fail("[{}] is empty, expected a picture: {}", file.name, kFormats);
  for (const Signature& format : kSignatures) {
    if (file.bytes.size() < format.at || !file.bytes.substr(format.at).starts_with(format.bytes)) continue;
    if (!format.room.empty())
      fail("[{}] is {}, which this build does not read{}", file.name, format.name,
           why_left_out("media", format.room));
    fail("[{}] is {}, expected {}; convert it, for example to PNG", file.name, format.name, kFormats);
  }
  fail("[{}] is no picture of a known format, expected {}; it begins with '{}'", file.name, kFormats,
       shown(file.bytes.substr(0, 16)));
}

const Decoder& decoder_of(const Encoded& file) {
  for (const auto& [name, decoder] : registry<Decoder>().entries())
    if (decoder.recognizes(file.bytes)) return decoder;
  fail_unknown(file);
}

Header checked_header(const Decoder& decoder, const Encoded& file, const ReadLimits& limits) {
  const Header header = decoder.header(file);
  const auto [width, height] = header.stored;
  if (width == 0 || height == 0)
    fail("[{}] is {} x {} pixels, expected at least one; get the file again, or leave it out", file.name,
         width, height);
  if (width > limits.most_pixels / height)
    fail("[{}] is {} x {} pixels; at most {} pixels are decoded: make it smaller, or leave it out", file.name,
         width, height, limits.most_pixels);
  return header;
}

}  // namespace

Size size_of_picture(const Encoded& file, const ReadLimits& limits) {
  const Header header = checked_header(decoder_of(file), file, limits);
  return turned_size(header.stored, header.orientation);
}

Picture read_picture(const Encoded& file, const ReadLimits& limits) {
  const Decoder& decoder = decoder_of(file);
  const Header header = checked_header(decoder, file, limits);
  return turn(decoder.decode(file, header), header.orientation);
}

std::string read_picture_file(const std::string& path) { return read_file(path, kMostFileBytes); }

}  // namespace temper::media
