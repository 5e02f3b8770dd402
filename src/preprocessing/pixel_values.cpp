#include "preprocessing/pixel_values.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "preprocessing/resample.h"

namespace temper::preprocessing {
namespace {

using media::Picture;

// The value of each byte of each color.
using ValueTable = std::array<std::array<float, 256>, Picture::kColors>;

ValueTable table_of(const PictureSettings& settings) {
  ValueTable table;
  for (size_t color = 0; color < Picture::kColors; ++color)
    for (size_t byte = 0; byte < 256; ++byte) {
      auto value = static_cast<float>(byte);
      // The product is float64, what comes behind it float32.
      if (settings.rescale) value = static_cast<float>(static_cast<double>(byte) * settings.rescale_factor);
      if (settings.normalize)
        value = (value - static_cast<float>(settings.mean[color])) / static_cast<float>(settings.std[color]);
      table[color][byte] = value;
    }
  return table;
}

// A rectangle of one color, row by row. Returns where the values end.
float* write_color(const uint8_t* pixel, int64_t stride, media::Size size,
                   const std::array<float, 256>& table, float* to) {
  for (int64_t y = 0; y < size.height; ++y, pixel += stride)
    for (int64_t x = 0; x < size.width; ++x) *to++ = table[pixel[x * Picture::kPixelBytes]];
  return to;
}

float* write_patch(const uint8_t* pixel, int64_t stride, const PatchLayout& layout, const ValueTable& table,
                   float* to) {
  const int64_t area = layout.patch_size * layout.patch_size;
  for (size_t color = 0; color < Picture::kColors; ++color) {
    const float* const frame = to;
    to = write_color(pixel + color, stride, {layout.patch_size, layout.patch_size}, table[color], to);
    for (int64_t repeated = 1; repeated < layout.temporal_patch_size; ++repeated)
      to = std::copy_n(frame, area, to);
  }
  return to;
}

void write_patches(const Picture& picture, const PatchLayout& layout, const ValueTable& table, float* to) {
  const int64_t stride = picture.width() * Picture::kPixelBytes;
  for (int64_t top = 0; top < picture.height(); top += layout.factor())
    for (int64_t left = 0; left < picture.width(); left += layout.factor())
      for (int64_t y = top; y < top + layout.factor(); y += layout.patch_size)
        for (int64_t x = left; x < left + layout.factor(); x += layout.patch_size)
          to = write_patch(picture.row(y) + x * Picture::kPixelBytes, stride, layout, table, to);
}

Picture cut(const Picture& picture, const Crop& crop) {
  Picture out(crop.size);
  for (int64_t y = 0; y < crop.size.height; ++y)
    std::copy_n(picture.row(crop.top + y) + crop.left * Picture::kPixelBytes,
                crop.size.width * Picture::kPixelBytes, out.row(y));
  return out;
}

}  // namespace

Picture resized_part(const Picture& picture, const PictureSettings& settings, const PictureShape& shape,
                     int64_t part) {
  if (part == 0) return resample(picture, shape.resized, settings.filter);
  const auto crops = crops_of(picture.size(), *std::get<FixedLayout>(settings.layout).pan_and_scan);
  return resample(cut(picture, crops[static_cast<size_t>(part - 1)]), shape.resized, settings.filter);
}

void write_pixel_values(const Picture& resized, const PictureSettings& settings, std::span<float> values) {
  const ValueTable table = table_of(settings);
  const auto* patches = std::get_if<PatchLayout>(&settings.layout);
  const int64_t frames = patches != nullptr ? patches->temporal_patch_size : 1;
  invariant(
      static_cast<int64_t>(values.size()) == resized.width() * resized.height() * Picture::kColors * frames,
      "the values of a picture have another size");
  float* to = values.data();
  if (patches != nullptr) {
    write_patches(resized, *patches, table, to);
    return;
  }
  for (size_t color = 0; color < Picture::kColors; ++color)
    to = write_color(resized.row(0) + color, resized.width() * Picture::kPixelBytes, resized.size(),
                     table[color], to);
}

PixelValues prepare(const Picture& picture, const PictureSettings& settings, std::string_view name) {
  PixelValues out;
  out.shape = shape_of(picture.size(), settings, name);
  out.memory = unset_array<float>(out.shape.rows * out.shape.columns, "the values of a picture");
  const std::span<float> all = out.values();
  const size_t of_part = all.size() / static_cast<size_t>(1 + out.shape.crops);
  for (int64_t part = 0; part <= out.shape.crops; ++part)
    write_pixel_values(resized_part(picture, settings, out.shape, part), settings,
                       all.subspan(static_cast<size_t>(part) * of_part, of_part));
  return out;
}

}  // namespace temper::preprocessing
