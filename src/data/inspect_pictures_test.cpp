#include "data/inspect_pictures.h"

#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/files.h"
#include "base/parts/rooms.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

std::string png() { return read_file(TEMPER_SOURCE_DIR "/tests/goldens/decoded_pictures/rgb.png"); }

class InspectPictures : public testing::Test {
 protected:
  InspectPictures() { write_file(folder_ / "a.png", png()); }
  std::string described(const std::string& row) const {
    return describe_pictures(Json::parse(row, ""), folder_ / "rows.jsonl", folder_.path());
  }
  void write_settings(const std::string& text) const {
    write_file(folder_ / "preprocessor_config.json", text);
  }

  TemporaryDirectory folder_;
};

TEST_F(InspectPictures, RowsWithoutPicturesSayNothing) {
  EXPECT_EQ(described(R"({"text": "<image>"})"), "");
  EXPECT_EQ(described("[1]"), "");
}

TEST_F(InspectPictures, SizesGridsAndTokens) {
  if (!is_built("media", "png")) GTEST_SKIP() << "this build reads no PNG";
  const std::string bytes = encode_base64(png());
  const std::string row =
      R"({"text": "<image> <image>", "images": ["a.png", "data:image/png;base64,)" + bytes + "\"]}";
  EXPECT_EQ(described(row),
            "  picture images[0] (a.png): 45 x 31 pixels\n  picture images[1] (bytes in the row): 45 x 31 "
            "pixels\n");
  write_settings(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  expect_has(
      described(row),
      "images[0] (a.png): 45 x 31 pixels, resized to 84 x 56, a grid of 1 x 4 x 6 patches, 6 tokens\n");
  write_settings(R"({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 896, "width": 896},
      "do_pan_and_scan": true, "pan_and_scan_min_crop_size": 9, "pan_and_scan_max_num_crops": 4,
      "pan_and_scan_min_ratio_to_activate": 1.2})");
  expect_has(described(row),
             "images[0] (a.png): 45 x 31 pixels, resized to 896 x 896, with 2 crops, 768 tokens\n");
}

TEST_F(InspectPictures, WhatIsWrongIsSaidOfEach) {
  if (!is_built("media", "png")) GTEST_SKIP() << "this build reads no PNG";
  write_file(folder_ / "b.png", png().substr(0, 500));
  const std::string text =
      described(R"({"text": "<image><image><image>", "images": ["b.png", "no.png", "a.png"]})");
  expect_has(text, "  picture bad: images[0]: [b.png] is truncated after 500 bytes");
  expect_has(text, "  picture bad: images[1]: [" + (folder_ / "no.png") + "]");
  expect_has(text, "  picture images[2] (a.png): 45 x 31 pixels\n");
  expect_has(described(R"({"text": "", "images": ["a.png"]})"),
             "  pictures: the number of pictures in images is 1, and");
  write_settings(R"({"image_processor_type": "CLIPImageProcessor"})");
  expect_has(described(R"({"text": "<image>", "images": ["a.png"]})"),
             "  pictures: [" + (folder_ / "preprocessor_config.json"));
}

}  // namespace
}  // namespace temper::data
