#include "media/orientation.h"

#include <algorithm>
#include <cstring>

namespace temper::media {
namespace {

constexpr int kTag = 0x0112;
constexpr int kByte = 1, kShort = 3, kLong = 4;  // types of a value
constexpr int64_t kEntryBytes = 12;
constexpr int64_t kTile = 32;  // pixels of a side: what is read and written at a time stays in the cache

// Whole numbers of a TIFF block in its order of bytes.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes), big_(bytes.starts_with("MM")) {}
  bool is_tiff() const { return (big_ || bytes_.starts_with("II")) && number(2, 2) == 42; }
  bool has(int64_t at, int64_t count) const {
    return at >= 0 && at + count <= static_cast<int64_t>(bytes_.size());
  }
  int64_t number(int64_t at, int64_t count) const {
    int64_t value = 0;
    if (!has(at, count)) return -1;
    for (int64_t i = 0; i < count; ++i)
      value = value << 8 |
              static_cast<unsigned char>(bytes_[static_cast<size_t>(big_ ? at + i : at + count - 1 - i)]);
    return value;
  }

 private:
  std::string_view bytes_;
  bool big_;
};

// Of the first directory; 0 where it has no such entry.
int read_exif(std::string_view bytes) {
  const Tiff tiff(bytes);
  if (!tiff.is_tiff()) return 0;
  const int64_t directory = tiff.number(4, 4);
  const int64_t count = tiff.number(directory, 2);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t entry = directory + 2 + i * kEntryBytes;
    if (!tiff.has(entry, kEntryBytes)) return 0;
    if (tiff.number(entry, 2) != kTag) continue;
    const int64_t type = tiff.number(entry + 2, 2);
    const int64_t size = type == kByte ? 1 : type == kShort ? 2 : type == kLong ? 4 : 0;
    // Said, but not as a number: upright.
    return size == 0 ? kUpright : static_cast<int>(std::clamp<int64_t>(tiff.number(entry + 8, size), 1, 9));
  }
  return 0;
}

int read_xmp(std::string_view packet) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = packet.find(kName); at != std::string_view::npos; at = packet.find(kName, at + 1)) {
    std::string_view rest = packet.substr(at + kName.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return 0;
}

// Where the stored picture's pixel is that comes to the first place, and how many pixels further the next one
// of a row and of a column are.
struct Walk {
  int64_t first, along_row, along_column;
};

Walk walk_of(Size stored, int orientation) {
  const int64_t width = stored.width, last_row = (stored.height - 1) * width, last = width - 1;
  switch (orientation) {
    case 2:
      return {last, -1, width};
    case 3:
      return {last_row + last, -1, -width};
    case 4:
      return {last_row, 1, -width};
    case 5:
      return {0, width, 1};
    case 6:
      return {last_row, -width, 1};
    case 7:
      return {last_row + last, -width, -1};
    case 8:
      return {last, width, -1};
    default:
      return {0, 1, width};
  }
}

}  // namespace

void Orientation::add_exif(std::string_view tiff) {
  if (exif_ == 0) exif_ = read_exif(tiff);
}

void Orientation::add_xmp(std::string_view packet) {
  if (xmp_ == 0) xmp_ = read_xmp(packet);
}

int Orientation::value() const {
  const int said = exif_ != 0 ? exif_ : xmp_;
  return said >= 1 && said <= 8 ? said : kUpright;
}

Size turned_size(Size stored, int orientation) {
  return orientation >= 5 ? Size{stored.height, stored.width} : stored;
}

Picture turn(Picture stored, int orientation) {
  if (orientation == kUpright) return stored;
  Picture turned(turned_size(stored.size(), orientation));
  const Walk walk = walk_of(stored.size(), orientation);
  const uint8_t* const from = stored.row(0);
  for (int64_t top = 0; top < turned.height(); top += kTile)
    for (int64_t left = 0; left < turned.width(); left += kTile)
      for (int64_t y = top; y < std::min(top + kTile, turned.height()); ++y)
        for (int64_t x = left; x < std::min(left + kTile, turned.width()); ++x)
          std::memcpy(turned.row(y) + x * Picture::kPixelBytes,
                      from + (walk.first + x * walk.along_row + y * walk.along_column) * Picture::kPixelBytes,
                      Picture::kPixelBytes);
  return turned;
}

}  // namespace temper::media
