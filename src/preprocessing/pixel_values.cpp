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

float* write_patches(const Picture& picture, const PatchLayout& layout, const ValueTable& table, float* to) {
  const int64_t stride = picture.width() * Picture::kPixelBytes;
  for (int64_t top = 0; top < picture.height(); top += layout.factor())
    for (int64_t left = 0; left < picture.width(); left += layout.factor())
      for (int64_t y = top; y < top + layout.factor(); y += layout.patch_size)
        for (int64_t x = left; x < left + layout.factor(); x += layout.patch_size)
          to = write_patch(picture.row(y) + x * Picture::kPixelBytes, stride, layout, table, to);
  return to;
}

Picture cut(const Picture& picture, const Crop& crop) {
  Picture out(crop.size);
  for (int64_t y = 0; y < crop.size.height; ++y)
    std::copy_n(picture.row(crop.top + y) + crop.left * Picture::kPixelBytes,
                crop.size.width * Picture::kPixelBytes, out.row(y));
  return out;
}

}  // namespace

std::vector<Picture> resized_pictures(const Picture& picture, const PictureSettings& settings,
                                      const PictureShape& shape) {
  std::vector<Picture> out;
  out.push_back(resample(picture, shape.resized, settings.filter));
  if (shape.crops == 0) return out;
  for (const Crop& crop : crops_of(picture.size(), *std::get<FixedLayout>(settings.layout).pan_and_scan))
    out.push_back(resample(cut(picture, crop), shape.resized, settings.filter));
  return out;
}

void write_pixel_values(const std::vector<Picture>& resized, const PictureSettings& settings,
                        const PictureShape& shape, std::span<float> values) {
  invariant(static_cast<int64_t>(values.size()) == shape.rows * shape.columns, "values have another size");
  const ValueTable table = table_of(settings);
  float* to = values.data();
  for (const Picture& picture : resized) {
    invariant(picture.size() == shape.resized, "a picture has another size than its shape");
    if (const auto* patches = std::get_if<PatchLayout>(&settings.layout)) {
      to = write_patches(picture, *patches, table, to);
      continue;
    }
    for (size_t color = 0; color < Picture::kColors; ++color)
      to = write_color(picture.row(0) + color, picture.width() * Picture::kPixelBytes, picture.size(),
                       table[color], to);
  }
}

PixelValues prepare(const Picture& picture, const PictureSettings& settings, std::string_view name) {
  PixelValues out;
  out.shape = shape_of(picture.size(), settings, name);
  out.memory = unset_array<float>(out.shape.rows * out.shape.columns, "the values of a picture");
  write_pixel_values(resized_pictures(picture, settings, out.shape), settings, out.shape, out.values());
  return out;
}

}  // namespace temper::preprocessing
