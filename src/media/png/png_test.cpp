#include <gtest/gtest.h>
#include <png.h>

#include "media/open_picture.h"
#include "media/png/chunks.h"
#include "media/png/usual_png.h"
#include "media/test_support.h"

namespace temper::media {
namespace {

constexpr Size kSize = {61, 23};

// Every channel has slopes, jumps and noise.
std::vector<uint8_t> pixels_of(int channels) {
  std::vector<uint8_t> pixels;
  uint32_t state = 3;
  for (int64_t y = 0; y < kSize.height; ++y)
    for (int64_t x = 0; x < kSize.width * channels; ++x) {
      state = state * 1664525 + 1013904223;
      pixels.push_back(
          static_cast<uint8_t>(x * 3 + y * 11 * (x % channels + 1) + (state >> 29) * (x % 7 == 0 ? 31 : 1)));
    }
  return pixels;
}

void append(png_structp png, png_bytep data, size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(data), size);
}

// Written by libpng with this filter alone in all rows that may have it.
std::string written(const std::vector<uint8_t>& pixels, int channels, int filter) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_compression_buffer_size(png, 256);  // many IDAT chunks
  png_set_IHDR(png, info, static_cast<png_uint_32>(kSize.width), static_cast<png_uint_32>(kSize.height), 8,
               channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_RGBA, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_BASE, PNG_FILTER_TYPE_BASE);
  png_set_filter(png, PNG_FILTER_TYPE_BASE, filter);
  png_write_info(png, info);
  for (int64_t y = 0; y < kSize.height; ++y) png_write_row(png, pixels.data() + y * kSize.width * channels);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

TEST(UsualPng, EveryFilterOfRgbAndRgba) {
  for (const int channels : {3, 4})
    for (const int filter : {PNG_FILTER_NONE, PNG_FILTER_SUB, PNG_FILTER_UP, PNG_FILTER_AVG, PNG_FILTER_PAETH,
                             PNG_ALL_FILTERS}) {
      const std::vector<uint8_t> pixels = pixels_of(channels);
      const std::string bytes = written(pixels, channels, filter);
      const std::optional<Picture> picture =
          decode_usual_png({bytes, "cat"}, read_png_header({bytes, "cat"}));
      ASSERT_TRUE(picture);
      int64_t wrong = 0;
      for (int64_t i = 0; i < kSize.width * kSize.height; ++i)
        for (int color = 0; color < Picture::kColors; ++color)
          wrong += picture->row(0)[i * Picture::kPixelBytes + color] !=
                   pixels[static_cast<size_t>(i * channels + color)];
      EXPECT_EQ(wrong, 0) << channels << " channels, filter " << filter;
    }
}

// libpng decodes the others, and says what is wrong.
TEST(UsualPng, OtherKindsAndDamagedFilesAreLeftToLibpng) {
  const auto usual = [](const std::string& bytes) {
    return decode_usual_png({bytes, "cat"}, read_png_header({bytes, "cat"})).has_value();
  };
  const auto file = [](const std::string& name) {
    return read_file(join_path(decoded_cases_folder(), name));
  };
  for (const char* name :
       {"grey.png", "palette.png", "rgb_wide.png", "interlaced.png", "grey_alpha.png", "one_bit.png"})
    EXPECT_FALSE(usual(file(name))) << name;
  const std::string whole = file("rgb.png");
  EXPECT_TRUE(usual(whole));
  EXPECT_FALSE(usual(whole.substr(0, whole.size() - 30)));
  std::string damaged = whole, larger = whole;
  damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
  EXPECT_FALSE(usual(damaged));
  larger[22] = 1;  // of the height
  EXPECT_FALSE(usual(larger));
}

}  // namespace
}  // namespace temper::media
