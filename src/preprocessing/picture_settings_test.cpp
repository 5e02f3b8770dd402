#include "preprocessing/picture_settings.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/errors.h"

namespace temper::preprocessing {
namespace {

PictureSettings read(const std::string& text) { return picture_settings_of(Json::parse(text, ""), "p.json"); }
PatchLayout patches(const std::string& text) { return std::get<PatchLayout>(read(text).layout); }
std::string refusal(const std::string& text) {
  return error_of([&] { read(text); });
}

// As published with Qwen2.5-VL.
TEST(PictureSettings, OfQwen25) {
  const PictureSettings settings = read(
      R"({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
          "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
          "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"})");
  const auto& layout = std::get<PatchLayout>(settings.layout);
  EXPECT_EQ(layout.min_pixels, 3136);
  EXPECT_EQ(layout.max_pixels, 12845056);
  EXPECT_EQ(layout.factor(), 28);
  EXPECT_EQ(settings.filter, Filter::kBicubic);
  EXPECT_EQ(settings.mean[1], 0.4578275);
  EXPECT_EQ(settings.rescale_factor, 1.0 / 255);
}

// As published with Qwen3-VL.
TEST(PictureSettings, OfQwen3) {
  const PictureSettings settings = read(
      R"({"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
          "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
          "processor_class": "Qwen3VLProcessor", "image_processor_type": "Qwen2VLImageProcessorFast"})");
  const auto& layout = std::get<PatchLayout>(settings.layout);
  EXPECT_EQ(layout.min_pixels, 65536);
  EXPECT_EQ(layout.max_pixels, 16777216);
  EXPECT_EQ(layout.factor(), 32);
  EXPECT_EQ(settings.std[2], 0.5);
}

// As published with Gemma 3.
TEST(PictureSettings, OfGemma3) {
  const PictureSettings settings = read(
      R"({"do_convert_rgb": null, "do_normalize": true, "do_pan_and_scan": null, "do_rescale": true, "do_resize": true,
          "image_mean": [0.5, 0.5, 0.5], "image_processor_type": "Gemma3ImageProcessor", "image_seq_length": 256,
          "image_std": [0.5, 0.5, 0.5], "pan_and_scan_max_num_crops": null, "pan_and_scan_min_crop_size": null,
          "pan_and_scan_min_ratio_to_activate": null, "processor_class": "Gemma3Processor", "resample": 2,
          "rescale_factor": 0.00392156862745098, "size": {"height": 896, "width": 896}})");
  const auto& layout = std::get<FixedLayout>(settings.layout);
  EXPECT_EQ(layout.size, (media::Size{896, 896}));
  EXPECT_EQ(layout.tokens, 256);
  EXPECT_FALSE(layout.pan_and_scan);
  EXPECT_EQ(settings.filter, Filter::kBilinear);
}

TEST(PictureSettings, BothSpellingsOfBoundsAndBothPlaces) {
  const std::string type = R"({"image_processor_type": "Qwen2VLImageProcessor")";
  EXPECT_EQ(patches(type + R"(, "size": {"min_pixels": 5, "max_pixels": 7}})").max_pixels, 7);
  EXPECT_EQ(patches(type + R"(, "size": {"min_pixels": 5, "max_pixels": 7}})").min_pixels, 5);
  EXPECT_EQ(
      patches(type + R"(, "min_pixels": 9, "size": {"shortest_edge": 5, "longest_edge": 7}})").min_pixels, 9);
  EXPECT_EQ(patches(type + R"(, "min_pixels": null, "size": {"shortest_edge": 5}})").min_pixels, 5);
  EXPECT_EQ(patches(type + "}").max_pixels, 1003520);
}

TEST(PictureSettings, PanAndScanNeedsItsBounds) {
  const std::string start = R"({"image_processor_type": "Gemma3ImageProcessor", "do_pan_and_scan": true)";
  EXPECT_EQ(refusal(start + "}"),
            "[p.json] pan_and_scan_min_crop_size is missing, expected a whole number from 1, as "
            "do_pan_and_scan is true");
  const PictureSettings settings =
      read(start + R"(, "pan_and_scan_min_crop_size": 256, "pan_and_scan_max_num_crops": 4,
      "pan_and_scan_min_ratio_to_activate": 1.2})");
  EXPECT_EQ(std::get<FixedLayout>(settings.layout).pan_and_scan->max_crops, 4);
}

TEST(PictureSettings, WhatIsNoSettingIsRefused) {
  EXPECT_EQ(
      refusal(R"({"image_processor_type": "CLIPImageProcessor"})"),
      "[p.json] image_processor_type is \"CLIPImageProcessor\", expected Qwen2VLImageProcessor (Qwen2-VL and "
      "later) or Gemma3ImageProcessor");
  expect_has(refusal("{}"), "[p.json] image_processor_type is missing, expected Qwen2VLImageProcessor");
  const std::string type = R"({"image_processor_type": "Qwen2VLImageProcessor", )";
  expect_has(refusal(type + R"("patch_size": 0})"), "patch_size is 0, expected a whole number from 1");
  expect_has(refusal(type + R"("patch_size": 14.5})"), "patch_size is 14.5, expected a whole number from 1");
  expect_has(refusal(type + R"("patch_size": 9000})"), "expected a whole number from 1 to 4096");
  expect_has(refusal(type + R"("size": {"longest_edge": "many"}})"),
             "size.longest_edge is \"many\", expected a whole");
  expect_has(refusal(type + R"("size": 224})"), "[p.json] size is an integer, expected an object");
  expect_has(refusal(type + R"("resample": 1})"), "resample is 1, expected 2 (bilinear) or 3 (bicubic)");
  expect_has(refusal(type + R"("image_mean": [0.5, 0.5]})"),
             "image_mean is [0.5, 0.5], expected three numbers");
  expect_has(refusal(type + R"("image_std": [0.5, 0, 0.5]})"), "expected numbers other than 0");
  expect_has(refusal(type + R"("do_resize": 1})"), "do_resize is 1, expected true or false");
  expect_has(refusal("[]"), "[p.json] the file is an array, expected an object");
}

// transformers 5 saves all of a model's processors in one file, which counts before the other.
TEST(PictureSettings, TheNewerFileCountsFirst) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(has_picture_settings(folder.path()));
  expect_has(error_of([&] { read_picture_settings(folder.path()); }), "there is no preprocessor_config.json");
  write_file(folder / "processor_config.json", R"({"processor_class": "Qwen2_5_VLProcessor"})");
  EXPECT_FALSE(has_picture_settings(folder.path()));
  write_file(folder / "preprocessor_config.json",
             R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14})");
  EXPECT_TRUE(has_picture_settings(folder.path()));
  EXPECT_EQ(std::get<PatchLayout>(read_picture_settings(folder.path()).layout).patch_size, 14);
  write_file(
      folder / "processor_config.json",
      R"({"image_processor": {"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16}})");
  EXPECT_EQ(std::get<PatchLayout>(read_picture_settings(folder.path()).layout).patch_size, 16);
  write_file(folder / "processor_config.json", R"({"image_processor": {"image_processor_type": 3}})");
  expect_has(error_of([&] { read_picture_settings(folder.path()); }),
             "processor_config.json: image_processor] image_processor_type is 3, expected a string");
}

}  // namespace
}  // namespace temper::preprocessing
