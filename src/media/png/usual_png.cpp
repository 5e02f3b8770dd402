#include "media/png/usual_png.h"

#include <libdeflate.h>

#include <cstring>
#include <memory>
#include <utility>

#include "media/png/chunks.h"

namespace temper::media {
namespace {

// The four bytes of a pixel as whole numbers, in vectors of GCC and Clang; the upper half is not used.
using Lanes = int16_t __attribute__((vector_size(16)));
using Bytes = uint8_t __attribute__((vector_size(8)));

constexpr size_t kReadableBehind = 8;

Lanes load(const uint8_t* bytes) {
  uint32_t four = 0;
  std::memcpy(&four, bytes, sizeof(four));
  const uint64_t eight = four;
  Bytes packed;
  std::memcpy(&packed, &eight, sizeof(packed));
  return __builtin_convertvector(packed, Lanes);
}

void store(Lanes lanes, uint8_t* bytes) {
  const Bytes packed = __builtin_convertvector(lanes, Bytes);
  std::memcpy(bytes, &packed, Picture::kPixelBytes);
}

Lanes absolute(Lanes x) { return x < 0 ? -x : x; }

// Whichever of left, above and left above is nearest to left + above - left above, in this order.
Lanes paeth(Lanes left, Lanes above, Lanes left_above) {
  const Lanes by_left = absolute(above - left_above), by_above = absolute(left - left_above);
  const Lanes by_both = absolute(left + above - left_above - left_above);
  const Lanes other = by_above <= by_both ? above : left_above;
  return (by_left <= by_above) & (by_left <= by_both) ? left : other;
}

// PNG, third edition, 9.2: what a pixel was less, by the filter of its row.
enum Filter : uint8_t { kNone, kSub, kUp, kAverage, kPaeth, kEnd };

template <Filter kFilter>
Lanes predicted(Lanes left, Lanes above, Lanes left_above) {
  if constexpr (kFilter == kSub) return left;
  if constexpr (kFilter == kUp) return above;
  if constexpr (kFilter == kAverage) return (left + above) >> 1;
  if constexpr (kFilter == kPaeth) return paeth(left, above, left_above);
  return Lanes{};
}

template <Filter kFilter>
void read_row(const uint8_t* filtered, int64_t pixel_bytes, const uint8_t* row_above, int64_t width,
              uint8_t* row) {
  Lanes left{}, left_above{};
  for (int64_t x = 0; x < width; ++x, filtered += pixel_bytes) {
    const Lanes above = load(row_above + x * Picture::kPixelBytes);
    left = (load(filtered) + predicted<kFilter>(left, above, left_above)) & 0xFF;
    left_above = above;
    store(left, row + x * Picture::kPixelBytes);
  }
}

using ReadRow = void (*)(const uint8_t*, int64_t, const uint8_t*, int64_t, uint8_t*);
constexpr ReadRow kReaders[kEnd] = {read_row<kNone>, read_row<kSub>, read_row<kUp>, read_row<kAverage>,
                                    read_row<kPaeth>};

// Bytes of a pixel; 0: another kind of PNG.
int64_t pixel_bytes_of(std::string_view bytes) {
  constexpr size_t kDepth = 24;  // then color type, compression, filters, interlacing
  if (bytes.size() < kDepth + 5) return 0;
  const std::string_view kind = bytes.substr(kDepth, 5);
  if (kind == std::string_view("\x08\x02\0\0\0", 5)) return 3;
  return kind == std::string_view("\x08\x06\0\0\0", 5) ? 4 : 0;
}

struct Packed {
  UnsetArray<uint8_t> bytes;
  size_t size = 0;
};

// The data of all IDAT chunks; nothing where one is cut off.
Packed packed_pixels(std::string_view bytes) {
  constexpr size_t kBeforeData = 8, kAfterData = 4;
  Packed packed = {unset_array<uint8_t>(static_cast<int64_t>(bytes.size()), "the pixels of a PNG")};
  for (size_t at = kPngSignature.size(); at + kBeforeData <= bytes.size();) {
    const auto length = static_cast<size_t>(big_endian(bytes, at, 4));
    const bool pixels = bytes.substr(at + 4, 4) == "IDAT";
    if (length + kAfterData > bytes.size() - at - kBeforeData) return pixels ? Packed() : std::move(packed);
    if (pixels) {
      std::memcpy(packed.bytes.get() + packed.size, bytes.data() + at + kBeforeData, length);
      packed.size += length;
    }
    at += kBeforeData + length + kAfterData;
  }
  return packed;
}

// Filtered rows, each behind the byte of its filter; false where the data are not these.
bool unpack(const Packed& packed, uint8_t* rows, size_t size) {
  const std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> decompressor(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  return decompressor != nullptr &&
         libdeflate_zlib_decompress(decompressor.get(), packed.bytes.get(), packed.size, rows, size,
                                    nullptr) == LIBDEFLATE_SUCCESS;
}

}  // namespace

std::optional<Picture> decode_usual_png(const Encoded& file, const Header& header) {
  const int64_t pixel_bytes = pixel_bytes_of(file.bytes);
  if (pixel_bytes == 0) return std::nullopt;
  const Packed packed = packed_pixels(file.bytes);
  const int64_t row_bytes = 1 + header.stored.width * pixel_bytes;
  const auto size = static_cast<size_t>(row_bytes * header.stored.height);
  // Deflate packs at most 1032 bytes into one.
  if (size / 1032 > packed.size) return std::nullopt;
  const auto rows =
      unset_array<uint8_t>(static_cast<int64_t>(size + kReadableBehind), "the rows of a picture");
  if (!unpack(packed, rows.get(), size)) return std::nullopt;
  std::memset(rows.get() + size, 0, kReadableBehind);
  Picture picture(header.stored), nothing({header.stored.width, 1});
  std::memset(nothing.row(0), 0, static_cast<size_t>(nothing.bytes()));
  for (int64_t y = 0; y < picture.height(); ++y) {
    const uint8_t* const row = rows.get() + y * row_bytes;
    if (*row >= kEnd) return std::nullopt;
    kReaders[*row](row + 1, pixel_bytes, y == 0 ? nothing.row(0) : picture.row(y - 1), picture.width(),
                   picture.row(y));
  }
  return picture;
}

}  // namespace temper::media
