#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "media/picture.h"
#include "preprocessing/picture_settings.h"

// How large a picture becomes, known from its size alone.
namespace temper::preprocessing {

struct Grid {
  int64_t frames = 1, rows = 0, columns = 0;  // in patches
  bool operator==(const Grid&) const = default;
};

struct PictureShape {
  media::Size resized;       // of the picture, and of each of its crops
  std::optional<Grid> grid;  // of patches; none where pictures have one size
  int64_t crops = 0;         // besides the whole
  int64_t rows = 0;          // of values: patches, or pictures
  int64_t columns =
      0;  // of values: of a patch (channel, frame, row, column) or a picture (channel, row, column)
  int64_t tokens = 0;  // in the text, of the whole and its crops together
  bool operator==(const PictureShape&) const = default;
};

// Both sides rounded to multiples of the layout's factor (halves to the even one), the area between its
// bounds (smart_resize of transformers' Qwen2VLImageProcessor, in float64). An Error that names the picture
// where one side is more than 200 times the other.
media::Size smart_resize(media::Size size, const PatchLayout& layout, std::string_view name);

// An Error that names the picture where it is not resized and its sides are no multiples of a block's.
PictureShape shape_of(media::Size size, const PictureSettings& settings, std::string_view name);

// A part of a picture.
struct Crop {
  int64_t left = 0, top = 0;
  media::Size size;
};

// From the left or the top; none where the picture is not long enough (pan_and_scan of transformers'
// Gemma3ImageProcessor).
std::vector<Crop> crops_of(media::Size size, const PanAndScan& settings);

}  // namespace temper::preprocessing
