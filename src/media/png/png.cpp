// PNG by libpng.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "media/png/chunks.h"
#include "media/png/usual_png.h"

namespace temper::media {
namespace {

bool recognizes(std::string_view bytes) { return bytes.starts_with(kPngSignature); }

// libpng reports errors by calling a function that must not return: it jumps back to where decoding was
// started. What it jumps over has no destructors.
struct Decoding {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string_view left;
  bool truncated = false;
  char message[256] = {};
  png_bytepp rows = nullptr;
  bool wide_grey = false;  // one channel of 16 bits

  ~Decoding() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_error(png_structp png, png_const_charp message) {
  auto& decoding = *static_cast<Decoding*>(png_get_error_ptr(png));
  std::snprintf(decoding.message, sizeof(decoding.message), "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& decoding = *static_cast<Decoding*>(png_get_io_ptr(png));
  decoding.truncated = count > decoding.left.size();
  if (decoding.truncated) png_error(png, "truncated");
  std::memcpy(to, decoding.left.data(), count);
  decoding.left.remove_prefix(count);
}

// Four bytes a pixel, whatever the file has. Of 16 bits the upper 8 are taken and of transparency nothing, as
// Pillow does.
void ask_for_rgb(Decoding& decoding) {
  png_structp png = decoding.png;
  const int type = png_get_color_type(png, decoding.info), depth = png_get_bit_depth(png, decoding.info);
  decoding.wide_grey = type == PNG_COLOR_TYPE_GRAY && depth == 16;
  if (decoding.wide_grey) return;
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  if (depth == 16) png_set_strip_16(png);
  png_set_filler(png, 0xFF, PNG_FILLER_AFTER);  // where there is no alpha
}

// Returns false where libpng failed.
bool decode_into(Decoding& decoding) {
  decoding.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoding, on_error, on_warning);
  if (decoding.png == nullptr) return false;
  if (setjmp(png_jmpbuf(decoding.png)) != 0) return false;
  decoding.info = png_create_info_struct(decoding.png);
  if (decoding.info == nullptr) return false;
  png_set_read_fn(decoding.png, &decoding, read_bytes);
  png_set_user_limits(decoding.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // sizes are checked before
  // What is not about pixels is not unpacked.
  png_set_keep_unknown_chunks(decoding.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(decoding.png, decoding.info);
  ask_for_rgb(decoding);
  png_set_interlace_handling(decoding.png);
  png_read_update_info(decoding.png, decoding.info);
  png_read_image(decoding.png, decoding.rows);
  return true;
}

// Values of 16 bits, the upper byte first, as Pillow converts its mode I;16: what is above 255 is white.
void clip_wide_grey(Picture& picture) {
  for (int64_t y = 0; y < picture.height(); ++y) {
    uint8_t* const row = picture.row(y);
    for (int64_t x = picture.width(); x-- > 0;) {
      const uint8_t value = row[2 * x] != 0 ? 255 : row[2 * x + 1];
      std::fill_n(row + x * Picture::kPixelBytes, Picture::kPixelBytes, value);
    }
  }
}

Picture decode(const Encoded& file, const Header& header) {
  if (std::optional<Picture> usual = decode_usual_png(file, header)) return std::move(*usual);
  Picture picture(header.stored);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < picture.height(); ++y) rows.push_back(picture.row(y));
  Decoding decoding;
  decoding.left = file.bytes;
  decoding.rows = rows.data();
  if (!decode_into(decoding)) {
    if (decoding.truncated) fail_truncated(file);
    fail_damaged(file, decoding.message);
  }
  if (decoding.wide_grey) clip_wide_grey(picture);
  return picture;
}

}  // namespace

void register_png() { registry<Decoder>().add("png", {recognizes, read_png_header, decode}); }

}  // namespace temper::media
