#include "media/jpeg/markers.h"

namespace temper::media {
namespace {

using namespace std::string_view_literals;

constexpr int kStartOfImage = 0xD8, kEndOfImage = 0xD9, kStartOfScan = 0xDA, kApplication1 = 0xE1;
constexpr size_t kSegment = 2, kFrameHeader = 8;  // bytes of a length, and of a frame's up to its width

bool has_no_segment(int marker) { return marker == 0x01 || (marker >= 0xD0 && marker <= kStartOfImage); }

// All frames but the markers between them: Huffman tables, arithmetic conditioning, an extension.
bool is_frame(int marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

void read_metadata(std::string_view segment, Orientation& orientation) {
  constexpr std::string_view kExif = "Exif\0\0"sv, kXmp = "http://ns.adobe.com/xap/1.0/\0"sv;
  if (segment.starts_with(kExif)) orientation.add_exif(segment.substr(kExif.size()));
  if (segment.starts_with(kXmp)) orientation.add_xmp(segment.substr(kXmp.size()));
}

}  // namespace

Header read_jpeg_header(const Encoded& file) {
  const std::string_view bytes = file.bytes;
  Header header;
  Orientation orientation;
  bool framed = false;
  for (size_t at = 2;;) {
    // Bytes between segments are left out, as libjpeg does; a marker may begin with more than one 0xFF.
    while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) != 0xFF) ++at;
    while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) == 0xFF) ++at;
    if (at >= bytes.size()) fail_truncated(file);
    const int marker = static_cast<unsigned char>(bytes[at++]);
    if (marker == 0 || has_no_segment(marker)) continue;
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    if (at + kSegment > bytes.size()) fail_truncated(file);
    const auto length = static_cast<size_t>(big_endian(bytes, at, kSegment));
    if (length < kSegment) fail_damaged(file, "a segment is shorter than its own length");
    if (at + length > bytes.size()) fail_truncated(file);
    const std::string_view segment = bytes.substr(at + kSegment, length - kSegment);
    if (marker == kApplication1) read_metadata(segment, orientation);
    if (is_frame(marker) && !framed) {
      if (length < kFrameHeader) fail_damaged(file, "the header of its frame is too short");
      header.stored = {big_endian(segment, 3, 2), big_endian(segment, 1, 2)};
      framed = true;
    }
    at += length;
  }
  if (!framed) fail_damaged(file, "no frame before the first scan");
  header.orientation = orientation.value();
  return header;
}

}  // namespace temper::media
