#include "data/pictures/picture_loader.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/parts/rooms.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

std::string file(const std::string& name) {
  return read_file(join_path(TEMPER_SOURCE_DIR "/tests/goldens/decoded_pictures", name));
}

class PictureLoaders : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_built("media", "png")) GTEST_SKIP() << "this build reads no PNG";
    write_file(folder_ / "a.png", file("rgb.png"));
    write_file(folder_ / "same.png", file("rgb.png"));
    write_file(folder_ / "b.png", file("turned_by_exif.png"));
    settings_.layout = preprocessing::PatchLayout{};
  }
  LoadedPicture load(const PictureLoader& loader, const std::string& path) const {
    return loader.load({"images[0]", path, ""}, folder_.path());
  }
  std::string refusal(const PictureLoader& loader, const std::string& path) const {
    return error_of([&] { load(loader, path); });
  }

  TemporaryDirectory folder_;
  preprocessing::PictureSettings settings_;
};

TEST_F(PictureLoaders, EqualFilesAreDecodedOnce) {
  const PictureLoader loader(settings_, kMebibyte);
  const LoadedPicture first = load(loader, "a.png"), again = load(loader, "same.png"),
                      other = load(loader, "b.png");
  EXPECT_EQ(first.parts.at(0), again.parts.at(0));
  EXPECT_NE(first.parts.at(0), other.parts.at(0));
  EXPECT_EQ(loader.cache().made(), 2);
  EXPECT_EQ(first.shape.grid, (preprocessing::Grid{1, 4, 6}));
  EXPECT_EQ(other.shape.grid, (preprocessing::Grid{1, 6, 4}));  // turned
  EXPECT_EQ(first.parts[0]->size(), first.shape.resized);
  const LoadedPicture bytes = loader.load({"images[0]", "", file("rgb.png")}, "/nowhere");
  EXPECT_EQ(bytes.parts.at(0), first.parts[0]);
}

TEST_F(PictureLoaders, WithoutRoomPicturesAreTheSame) {
  const PictureLoader kept(settings_, kMebibyte), forgetful(settings_, 0);
  for (int time = 0; time < 2; ++time) {
    const LoadedPicture a = load(kept, "a.png"), b = load(forgetful, "a.png");
    ASSERT_EQ(a.parts.size(), 1U);
    for (int64_t i = 0; i < a.parts[0]->bytes(); ++i)
      if (i % media::Picture::kPixelBytes < media::Picture::kColors) {
        ASSERT_EQ(a.parts[0]->row(0)[i], b.parts[0]->row(0)[i]);
      }
  }
  EXPECT_EQ(kept.cache().made(), 1);
  EXPECT_EQ(forgetful.cache().made(), 2);
}

TEST_F(PictureLoaders, CropsAreParts) {
  settings_.layout = preprocessing::FixedLayout{
      .size = {32, 32}, .tokens = 16, .pan_and_scan = preprocessing::PanAndScan{9, 4, 1.2}};
  const PictureLoader loader(settings_, kMebibyte);
  const LoadedPicture loaded = load(loader, "a.png");
  EXPECT_EQ(loaded.shape.crops, 2);
  ASSERT_EQ(loaded.parts.size(), 3U);
  EXPECT_EQ(loaded.parts[2]->size(), (media::Size{32, 32}));
}

TEST_F(PictureLoaders, ErrorsNameThePlaceInTheRow) {
  write_file(folder_ / "cut.png", file("rgb.png").substr(0, 700));
  const PictureLoader loader(settings_, kMebibyte), small(settings_, kMebibyte, {.most_pixels = 100});
  expect_has(refusal(loader, "no.png"), "images[0]: [" + (folder_ / "no.png") + "]");
  expect_has(refusal(loader, "cut.png"), "images[0]: [cut.png] is truncated after 700 bytes");
  expect_has(refusal(small, "a.png"), "images[0]: [a.png] is 45 x 31 pixels; at most 100 pixels are decoded");
}

}  // namespace
}  // namespace temper::data
