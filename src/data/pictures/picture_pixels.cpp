#include "data/pictures/picture_pixels.h"

#include "base/error.h"
#include "preprocessing/pixel_values.h"

namespace temper::data {

PicturePixels unset_pixels(const std::vector<LoadedPicture>& pictures) {
  PicturePixels pixels;
  for (const LoadedPicture& picture : pictures) {
    invariant(pixels.rows == 0 || pixels.columns == picture.shape.columns,
              "pictures of one model have rows of one width");
    pixels.columns = picture.shape.columns;
    pixels.rows += picture.shape.rows;
    if (picture.shape.grid) pixels.grids.push_back(*picture.shape.grid);
  }
  pixels.memory = unset_array<float>(pixels.rows * pixels.columns, "the values of pictures");
  return pixels;
}

void write_picture(const LoadedPicture& picture, const preprocessing::PictureSettings& settings,
                   const PicturePixels& pixels, int64_t row) {
  const auto size = static_cast<size_t>(picture.shape.rows * pixels.columns) / picture.parts.size();
  auto begin = static_cast<size_t>(row * pixels.columns);
  for (const std::shared_ptr<const media::Picture>& part : picture.parts) {
    preprocessing::write_pixel_values(*part, settings, pixels.values().subspan(begin, size));
    begin += size;
  }
}

}  // namespace temper::data
