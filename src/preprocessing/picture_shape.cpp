#include "preprocessing/picture_shape.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace temper::preprocessing {
namespace {

using media::Size;

constexpr double kMostAspect = 200;

int64_t floored(double side, double factor) {
  return static_cast<int64_t>(std::floor(side / factor)) * static_cast<int64_t>(factor);
}

PictureShape shape_in_patches(Size size, const PictureSettings& settings, const PatchLayout& layout,
                              std::string_view name) {
  PictureShape shape;
  shape.resized = settings.resize ? smart_resize(size, layout, name) : size;
  const auto [width, height] = shape.resized;
  if (width % layout.factor() != 0 || height % layout.factor() != 0)
    fail(
        "[{}] is {} x {} pixels and is not resized (do_resize is false), expected multiples of {}; resize "
        "it, or set "
        "do_resize to true",
        name, width, height, layout.factor());
  shape.grid = Grid{1, height / layout.patch_size, width / layout.patch_size};
  shape.rows = shape.grid->rows * shape.grid->columns;
  shape.columns =
      media::Picture::kColors * layout.temporal_patch_size * layout.patch_size * layout.patch_size;
  shape.tokens = shape.rows / (layout.merge_size * layout.merge_size);
  return shape;
}

PictureShape shape_of_one_size(Size size, const PictureSettings& settings, const FixedLayout& layout,
                               std::string_view name) {
  PictureShape shape;
  if (!settings.resize && size != layout.size)
    fail(
        "[{}] is {} x {} pixels and is not resized (do_resize is false), expected {} x {}; resize it, or set "
        "do_resize "
        "to true",
        name, size.width, size.height, layout.size.width, layout.size.height);
  shape.resized = layout.size;
  if (layout.pan_and_scan) shape.crops = static_cast<int64_t>(crops_of(size, *layout.pan_and_scan).size());
  shape.rows = 1 + shape.crops;
  shape.columns = media::Picture::kColors * layout.size.width * layout.size.height;
  shape.tokens = layout.tokens * shape.rows;
  return shape;
}

}  // namespace

Size smart_resize(Size size, const PatchLayout& layout, std::string_view name) {
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  if (std::max(width, height) / std::min(width, height) > kMostAspect)
    fail(
        "[{}] is {} x {} pixels: one side is more than {} times the other, which no grid of patches takes; "
        "cut it into "
        "parts, or leave it out",
        name, size.width, size.height, kMostAspect);
  const auto factor = static_cast<double>(layout.factor());
  const auto most = static_cast<double>(layout.max_pixels), least = static_cast<double>(layout.min_pixels);
  // nearbyint rounds halves to even, as Python's round does.
  const double rows = std::nearbyint(height / factor) * factor;
  const double columns = std::nearbyint(width / factor) * factor;
  if (rows * columns > most) {
    const double shrink = std::sqrt(height * width / most);
    return {std::max(layout.factor(), floored(width / shrink, factor)),
            std::max(layout.factor(), floored(height / shrink, factor))};
  }
  if (rows * columns < least) {
    const double grow = std::sqrt(least / (height * width));
    return {static_cast<int64_t>(std::ceil(width * grow / factor) * factor),
            static_cast<int64_t>(std::ceil(height * grow / factor) * factor)};
  }
  return {static_cast<int64_t>(columns), static_cast<int64_t>(rows)};
}

PictureShape shape_of(Size size, const PictureSettings& settings, std::string_view name) {
  if (const auto* patches = std::get_if<PatchLayout>(&settings.layout))
    return shape_in_patches(size, settings, *patches, name);
  return shape_of_one_size(size, settings, std::get<FixedLayout>(settings.layout), name);
}

std::vector<Crop> crops_of(Size size, const PanAndScan& settings) {
  const bool wide = size.width >= size.height;
  const int64_t longer = wide ? size.width : size.height, shorter = wide ? size.height : size.width;
  const double ratio = static_cast<double>(longer) / static_cast<double>(shorter);
  if (ratio < settings.min_ratio) return {};
  const auto wanted = static_cast<int64_t>(std::floor(ratio + 0.5));
  const int64_t fitting = std::min(longer / settings.min_crop_size, wanted);
  const int64_t count = std::min(settings.max_crops, std::max<int64_t>(2, fitting));
  const int64_t length = (longer + count - 1) / count;
  if (std::min(length, shorter) < settings.min_crop_size) return {};
  std::vector<Crop> crops;
  for (int64_t at = 0; at < count; ++at) {
    const int64_t begin = at * length, extent = std::min(length, longer - begin);
    crops.push_back(wide ? Crop{begin, 0, {extent, shorter}} : Crop{0, begin, {shorter, extent}});
  }
  return crops;
}

}  // namespace temper::preprocessing
