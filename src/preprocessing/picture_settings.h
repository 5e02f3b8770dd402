#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/json/json.h"
#include "media/picture.h"

// What a model's folder says about how pictures become what its tower reads. Names and defaults are those of
// transformers' image processors.
namespace temper::preprocessing {

// With Pillow's numbers, which preprocessor_config.json has.
enum class Filter { kBilinear = 2, kBicubic = 3 };

// Qwen2VLImageProcessor: the picture keeps its aspect and becomes a grid of patches.
struct PatchLayout {
  int64_t patch_size = 14;          // pixels of a side
  int64_t merge_size = 2;           // patches of a side of the block that becomes one token
  int64_t temporal_patch_size = 2;  // frames of a patch: a picture's only frame is repeated
  int64_t min_pixels = 56 * 56, max_pixels = 28 * 28 * 1280;

  int64_t factor() const { return patch_size * merge_size; }
};

// Crops along the longer side of pictures that are much longer than wide, in addition to the whole.
struct PanAndScan {
  int64_t min_crop_size = 0;  // pixels of a side
  int64_t max_crops = 0;
  double min_ratio = 0;
};

// Gemma3ImageProcessor: whatever the picture's aspect, it gets this size.
struct FixedLayout {
  media::Size size = {224, 224};
  int64_t tokens = 256;  // of a picture, and of each crop
  std::optional<PanAndScan> pan_and_scan = {};
};

struct PictureSettings {
  std::variant<PatchLayout, FixedLayout> layout;
  Filter filter = Filter::kBicubic;
  bool resize = true, rescale = true, normalize = true;
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> mean = {}, std = {1, 1, 1};  // of red, green and blue
};

// Whether the model's folder says how it reads pictures.
bool has_picture_settings(const std::string& folder);

// Of `image_processor` in processor_config.json where that is there, else of preprocessor_config.json, as
// transformers looks for them. Errors name the file and the key: another class of processor, values of
// another kind or out of range.
PictureSettings read_picture_settings(const std::string& folder);

// The same of a file's content; `where` names it in errors.
PictureSettings picture_settings_of(const Json& config, const std::string& where);

}  // namespace temper::preprocessing
