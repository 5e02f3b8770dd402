#include "media/open_picture.h"

#include <gtest/gtest.h>

#include "base/parts/rooms.h"
#include "media/test_support.h"
#include "tests/support/errors.h"

namespace temper::media {
namespace {

std::string file_of(const std::string& name) { return read_file(join_path(decoded_cases_folder(), name)); }

std::string refusal(const std::string& bytes, const ReadLimits& limits = {}) {
  return error_of([&] { read_picture({bytes, "cat"}, limits); });
}

// A room may be left out.
bool is_read(const std::string& name) {
  const std::string ending = name.substr(name.rfind('.') + 1);
  return is_built("media", ending == "jpg" ? "jpeg" : ending);
}

// Pillow 12.3 read these files, turned them as their metadata say and made RGB of them.
TEST(OpenPicture, BytesOfEveryKindOfFileArePillows) {
  const Json cases = Json::parse_file(join_path(decoded_cases_folder(), "cases.json"));
  for (const Json& each : cases.at("cases").as_array()) {
    const std::string& name = each.at("file").as_string();
    if (!is_read(name)) continue;
    const std::string bytes = file_of(name);
    const Size expected = {each.at("width").as_int(), each.at("height").as_int()};
    EXPECT_EQ(size_of_picture({bytes, name}), expected) << name;
    const Picture picture = read_picture({bytes, name});
    EXPECT_EQ(picture.size(), expected) << name;
    EXPECT_EQ(crc32_of(picture), each.at("crc32").as_int()) << name;
  }
}

TEST(OpenPicture, WhatIsNoPictureIsRefusedByName) {
  EXPECT_EQ(refusal(""), "[cat] is empty, expected a picture: JPEG, PNG or WebP");
  EXPECT_EQ(refusal("GIF89a and more"),
            "[cat] is GIF, expected JPEG, PNG or WebP; convert it, for example to PNG");
  EXPECT_EQ(
      refusal("<!DOCTYPE html><title>404</title>"),
      "[cat] is no picture of a known format, expected JPEG, PNG or WebP; it begins with '<!DOCTYPE html><'");
  expect_has(refusal(std::string("\0\x1b[2J", 5)), "it begins with '\\x00\\x1b[2J'");
}

TEST(OpenPicture, MissingFilesAreRefused) {
  expect_has(error_of([] { read_picture_file("/nowhere/cat.jpg"); }), "[/nowhere/cat.jpg]");
}

// Every beginning of a file is refused, whatever it ends in. Behind the pixels metadata may be missing.
TEST(OpenPicture, TruncatedFilesAreRefusedAtEveryByte) {
  for (const std::string name :
       {"rgb_420.jpg", "progressive.jpg", "turned_6.jpg", "rgb.png", "interlaced.png",
        "palette_transparent.png", "lossy.webp", "lossless_alpha.webp", "animated.webp"}) {
    if (!is_read(name)) continue;
    const std::string whole = file_of(name);
    const size_t end = name.ends_with("png") ? whole.size() - 12 - 4 : whole.size();
    for (size_t size = 12; size < end; ++size)
      expect_has(refusal(whole.substr(0, size)), fmt::format("[cat] is truncated after {} bytes; get", size));
    for (size_t size = 1; size < 12; ++size) EXPECT_NE(refusal(whole.substr(0, size)), "") << name << size;
  }
}

// What is damaged is decoded or refused; nothing else happens (the sanitizers look on).
TEST(OpenPicture, DamagedFilesAreDecodedOrRefused) {
  for (const std::string name :
       {"rgb_420.jpg", "cmyk.jpg", "progressive.jpg", "turned_5.jpg", "grey_two_bits.png", "palette.png",
        "interlaced.png", "turned_by_exif.png", "lossy_alpha.webp", "animated.webp", "turned_by_exif.webp"}) {
    if (!is_read(name)) continue;
    const std::string whole = file_of(name);
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 == 0 ? 0xFF : 0x11));
      try {
        const Picture picture = read_picture({damaged, "cat"}, {.most_pixels = 1 << 20});
        EXPECT_GT(picture.width() * picture.height(), 0);
      } catch (const Error& error) {
        expect_has(error.what(), "[cat] ");
        EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      }
    }
  }
}

std::string with(std::string bytes, size_t at, const std::string& replacement) {
  return bytes.replace(at, replacement.size(), replacement);
}

constexpr size_t kPngWidth = 16;  // bytes of signature, length and type

TEST(OpenPicture, PicturesWithoutPixelsAreRefused) {
  if (is_read("png")) {
    EXPECT_EQ(refusal(with(file_of("rgb.png"), kPngWidth, std::string(8, '\0'))),
              "[cat] is 0 x 0 pixels, expected at least one; get the file again, or leave it out");
  }
  if (!is_read("jpg")) return;
  const std::string whole = file_of("rgb_444.jpg");
  const size_t frame = whole.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  expect_has(refusal(with(whole, frame + 5, std::string(2, '\0'))),
             "[cat] is 45 x 0 pixels, expected at least one");
}

// 60,000 x 60,000 pixels in a file of a few hundred bytes, refused before anything is decoded.
TEST(OpenPicture, BombsAreRefusedBeforeDecoding) {
  const std::string message =
      "[cat] is 60000 x 60000 pixels; at most 178956970 pixels are decoded: make it smaller, or leave it out";
  if (is_read("png")) {
    EXPECT_EQ(refusal(with(file_of("rgb.png"), kPngWidth, std::string("\0\0\xEA\x60\0\0\xEA\x60", 8))),
              message);
  }
  if (!is_read("jpg")) return;
  const std::string whole = file_of("progressive.jpg");
  const size_t frame = whole.find("\xFF\xC2");
  ASSERT_NE(frame, std::string::npos);
  EXPECT_EQ(refusal(with(whole, frame + 5, "\xEA\x60\xEA\x60")), message);
}

TEST(OpenPicture, TheLimitIsOfPixels) {
  if (!is_read("png")) GTEST_SKIP() << "this build reads no PNG";
  EXPECT_EQ(refusal(file_of("rgb.png"), {.most_pixels = 45 * 31}), "");
  expect_has(refusal(file_of("rgb.png"), {.most_pixels = 45 * 31 - 1}),
             "is 45 x 31 pixels; at most 1394 pixels are decoded");
}

// Sizes at which their product, or a number of bytes, has more than 64 or 32 bits.
TEST(OpenPicture, EnormousSizesAreRefused) {
  if (!is_read("png")) GTEST_SKIP() << "this build reads no PNG";
  expect_has(refusal(with(file_of("rgb.png"), kPngWidth, std::string(8, '\xFF'))),
             "[cat] is 4294967295 x 4294967295 pixels; at most");
}

// The header of progressive.jpg, and its last scan again and again.
TEST(OpenPicture, JpegsOfThousandsOfScansAreRefused) {
  if (!is_read("jpg")) GTEST_SKIP() << "this build reads no JPEG";
  const std::string whole = file_of("progressive.jpg");
  const size_t scan = whole.rfind("\xFF\xDA"), end = whole.size() - 2;
  std::string many = whole.substr(0, end);
  for (int i = 0; i < 600; ++i) many += whole.substr(scan, end - scan);
  expect_has(refusal(many + whole.substr(end)), "[cat] has more than 500 scans");
}

}  // namespace
}  // namespace temper::media
