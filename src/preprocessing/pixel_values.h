#pragma once
#include <span>
#include <string_view>

#include "base/unset_memory.h"
#include "media/picture.h"
#include "preprocessing/picture_shape.h"

namespace temper::preprocessing {

// A part of a picture at the size that the tower reads: 0 is the whole, the others are its crops, of which
// `shape`, shape_of the picture's size, says the number.
media::Picture resized_part(const media::Picture& picture, const PictureSettings& settings,
                            const PictureShape& shape, int64_t part);

// pixel_values of one resized part in float32: (byte · rescale_factor − mean) / std with the roundings of
// transformers' Pillow backend. With a grid they are [patches, values]: patches stand in blocks of merge_size
// × merge_size, row by row of blocks and inside of a block; the values of a patch are (channel, frame, row,
// column), and its only frame is repeated. Without a grid they are (channel, row, column).
void write_pixel_values(const media::Picture& resized, const PictureSettings& settings,
                        std::span<float> values);

struct PixelValues {
  PictureShape shape;
  UnsetArray<float> memory;  // [shape.rows, shape.columns]

  std::span<float> values() const { return {memory.get(), static_cast<size_t>(shape.rows * shape.columns)}; }
};

// All of it for one picture; `name` is what errors call it.
PixelValues prepare(const media::Picture& picture, const PictureSettings& settings, std::string_view name);

}  // namespace temper::preprocessing
