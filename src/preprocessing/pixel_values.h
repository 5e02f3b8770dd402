#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "base/unset_memory.h"
#include "media/picture.h"
#include "preprocessing/picture_shape.h"

namespace temper::preprocessing {

// The picture and its crops at the size that the tower reads. `shape` is shape_of the picture's size.
std::vector<media::Picture> resized_pictures(const media::Picture& picture, const PictureSettings& settings,
                                             const PictureShape& shape);

// pixel_values of resized pictures, [shape.rows, shape.columns] in float32: (byte · rescale_factor − mean) /
// std with the roundings of transformers' Pillow backend. Patches stand in blocks of merge_size × merge_size,
// row by row of blocks and inside of a block; the values of a patch are (channel, frame, row, column), its
// only frame is repeated. Without a grid they are (channel, row, column) of each picture.
void write_pixel_values(const std::vector<media::Picture>& resized, const PictureSettings& settings,
                        const PictureShape& shape, std::span<float> values);

struct PixelValues {
  PictureShape shape;
  UnsetArray<float> memory;  // [shape.rows, shape.columns]

  std::span<float> values() const { return {memory.get(), static_cast<size_t>(shape.rows * shape.columns)}; }
};

// All of it for one picture; `name` is what errors call it.
PixelValues prepare(const media::Picture& picture, const PictureSettings& settings, std::string_view name);

}  // namespace temper::preprocessing
