#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/unset_memory.h"
#include "data/pictures/picture_loader.h"

namespace temper::data {

// What a tower reads of several pictures.
struct PicturePixels {
  UnsetArray<float> memory;  // [rows, columns]: of one picture after the other what write_pixel_values makes
  int64_t rows = 0, columns = 0;
  std::vector<preprocessing::Grid> grids = {};  // of the pictures, where they have some

  std::span<float> values() const { return {memory.get(), static_cast<size_t>(rows * columns)}; }
};

// Memory for these pictures, whose values are not set.
PicturePixels unset_pixels(const std::vector<LoadedPicture>& pictures);

// Writes those of one picture, the first of which are in `row`.
void write_picture(const LoadedPicture& picture, const preprocessing::PictureSettings& settings,
                   const PicturePixels& pixels, int64_t row);

}  // namespace temper::data
