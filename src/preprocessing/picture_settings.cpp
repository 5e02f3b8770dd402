#include "preprocessing/picture_settings.h"

#include "base/error.h"
#include "base/files.h"
#include "preprocessing/settings_reader.h"

namespace temper::preprocessing {
namespace {

constexpr std::string_view kPatches = "Qwen2VLImageProcessor", kFixed = "Gemma3ImageProcessor";
constexpr std::string_view kOldFile = "preprocessor_config.json", kNewFile = "processor_config.json";
constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};
constexpr std::array<double, 3> kHalf = {0.5, 0.5, 0.5};

// The class's name ends in what resizes: Pillow, or torchvision ("Fast" in older files). All make the same
// grids, and here the same pixels.
bool is_class(std::string_view name, std::string_view expected) {
  if (!name.starts_with(expected)) return false;
  name.remove_prefix(expected.size());
  return name.empty() || name == "Fast" || name == "Pil";
}

// Bounds of pixels have two spellings, and the older one has two places. Where several are there, the keys at
// the top are right, as in transformers.
int64_t pixels(const SettingsReader& keys, std::string_view old_key, std::string_view key,
               int64_t otherwise) {
  const SettingsReader size = keys.object("size");
  return keys.positive(old_key, size.positive(key, size.positive(old_key, otherwise)));
}

PatchLayout read_patches(const SettingsReader& keys) {
  PatchLayout layout;
  layout.patch_size = keys.positive("patch_size", layout.patch_size);
  layout.merge_size = keys.positive("merge_size", layout.merge_size);
  layout.temporal_patch_size = keys.positive("temporal_patch_size", layout.temporal_patch_size);
  layout.min_pixels = pixels(keys, "min_pixels", "shortest_edge", layout.min_pixels);
  layout.max_pixels = pixels(keys, "max_pixels", "longest_edge", layout.max_pixels);
  constexpr int64_t kMostSide = 4096;
  if (layout.patch_size > kMostSide) keys.refuse("patch_size", "a whole number from 1 to 4096");
  if (layout.merge_size > kMostSide) keys.refuse("merge_size", "a whole number from 1 to 4096");
  if (layout.temporal_patch_size > kMostSide)
    keys.refuse("temporal_patch_size", "a whole number from 1 to 4096");
  return layout;
}

FixedLayout read_fixed(const SettingsReader& keys) {
  FixedLayout layout;
  const SettingsReader size = keys.object("size");
  layout.size = {size.positive("width", layout.size.width), size.positive("height", layout.size.height)};
  constexpr int64_t kMostSide = 16384;
  if (layout.size.width > kMostSide) size.refuse("width", "a whole number from 1 to 16384");
  if (layout.size.height > kMostSide) size.refuse("height", "a whole number from 1 to 16384");
  layout.tokens = keys.positive("image_seq_length", layout.tokens);
  if (!keys.flag("do_pan_and_scan", false)) return layout;
  PanAndScan crops;
  for (const char* key : {"pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops"})
    if (!keys.has(key)) keys.refuse(key, "a whole number from 1, as do_pan_and_scan is true");
  if (!keys.has("pan_and_scan_min_ratio_to_activate"))
    keys.refuse("pan_and_scan_min_ratio_to_activate", "a number, as do_pan_and_scan is true");
  crops.min_crop_size = keys.positive("pan_and_scan_min_crop_size", 1);
  crops.max_crops = keys.positive("pan_and_scan_max_num_crops", 1);
  crops.min_ratio = keys.number("pan_and_scan_min_ratio_to_activate", 1);
  layout.pan_and_scan = crops;
  return layout;
}

Filter read_filter(const SettingsReader& keys, Filter otherwise) {
  const int64_t number = keys.positive("resample", static_cast<int64_t>(otherwise));
  if (number != static_cast<int64_t>(Filter::kBilinear) && number != static_cast<int64_t>(Filter::kBicubic))
    keys.refuse("resample", "2 (bilinear) or 3 (bicubic)");
  return static_cast<Filter>(number);
}

void read_values(const SettingsReader& keys, PictureSettings& settings) {
  settings.resize = keys.flag("do_resize", true);
  settings.rescale = keys.flag("do_rescale", true);
  settings.normalize = keys.flag("do_normalize", true);
  settings.rescale_factor = keys.number("rescale_factor", settings.rescale_factor);
  settings.mean = keys.colors("image_mean", settings.mean);
  settings.std = keys.colors("image_std", settings.std);
  for (const double one : settings.std)
    if (one == 0) keys.refuse("image_std", "numbers other than 0");
}

}  // namespace

bool has_picture_settings(const std::string& folder) {
  const std::string path = join_path(folder, kNewFile);
  if (exists(path) && Json::parse_file(path).find("image_processor") != nullptr) return true;
  return exists(join_path(folder, kOldFile));
}

PictureSettings read_picture_settings(const std::string& folder) {
  if (const std::string path = join_path(folder, kNewFile); exists(path)) {
    const Json config = Json::parse_file(path);
    if (const Json* found = config.find("image_processor"))
      return picture_settings_of(*found, path + ": image_processor");
  }
  const std::string path = join_path(folder, kOldFile);
  if (!exists(path))
    fail(
        "[{}] there is no {}, which says how pictures are read; copy it from the folder that the model was "
        "published in",
        folder, kOldFile);
  return picture_settings_of(Json::parse_file(path), path);
}

PictureSettings picture_settings_of(const Json& config, const std::string& where) {
  const SettingsReader keys(config, where);
  const std::string name = keys.text("image_processor_type");
  PictureSettings settings;
  if (is_class(name, kPatches)) {
    settings.layout = read_patches(keys);
    settings.filter = read_filter(keys, Filter::kBicubic);
    settings.mean = kClipMean;
    settings.std = kClipStd;
  } else if (is_class(name, kFixed)) {
    settings.layout = read_fixed(keys);
    settings.filter = read_filter(keys, Filter::kBilinear);
    settings.mean = settings.std = kHalf;
  } else {
    keys.refuse("image_processor_type", fmt::format("{} (Qwen2-VL and later) or {}", kPatches, kFixed));
  }
  read_values(keys, settings);
  return settings;
}

}  // namespace temper::preprocessing
