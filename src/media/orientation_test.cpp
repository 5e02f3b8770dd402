#include "media/orientation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace temper::media {
namespace {

// 1 2 3
// 4 5 6
Picture numbered() {
  Picture picture({3, 2});
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t byte = 0; byte < 4; ++byte) picture.row(0)[4 * i + byte] = static_cast<uint8_t>(i + 1);
  return picture;
}

std::string drawn(const Picture& picture) {
  std::string text;
  for (int64_t y = 0; y < picture.height(); ++y) {
    if (y > 0) text += ' ';
    for (int64_t x = 0; x < picture.width(); ++x) {
      const uint8_t* pixel = picture.row(y) + 4 * x;
      text += std::string(1, static_cast<char>('0' + pixel[0]));
      for (int byte = 1; byte < 4; ++byte) EXPECT_EQ(pixel[byte], pixel[0]);
    }
  }
  return text;
}

TEST(Orientation, PicturesAreTurnedInEachOfTheEightWays) {
  const std::vector<std::string> expected = {"123 456",  "321 654",  "654 321",  "456 123",
                                             "14 25 36", "41 52 63", "63 52 41", "36 25 14"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(drawn(turn(numbered(), orientation)), expected[static_cast<size_t>(orientation - 1)])
        << orientation;
    EXPECT_EQ(turned_size({3, 2}, orientation), orientation < 5 ? (Size{3, 2}) : (Size{2, 3}));
  }
}

// Larger than what is turned at a time, and no multiple of it.
TEST(Orientation, LargePicturesAreTurnedWhole) {
  Picture picture({101, 67});
  for (int64_t i = 0; i < 101 * 67 * 4; ++i) picture.row(0)[i] = static_cast<uint8_t>(i * 31 % 251);
  Picture copy({101, 67});
  std::copy_n(picture.row(0), picture.bytes(), copy.row(0));
  for (const auto& [there, back] : {std::pair(2, 2), {3, 3}, {4, 4}, {5, 5}, {6, 8}, {7, 7}, {8, 6}}) {
    picture = turn(turn(std::move(picture), there), back);
    ASSERT_EQ(picture.size(), copy.size());
    EXPECT_TRUE(std::equal(picture.row(0), picture.row(0) + picture.bytes(), copy.row(0))) << there;
  }
}

std::string little(int64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string tiff(int type, int64_t value, int64_t entries = 1) {
  return "II" + little(42, 2) + little(8, 4) + little(entries, 2) + little(0x0112, 2) + little(type, 2) +
         little(1, 4) + little(value, 4);
}

int of_exif(const std::string& bytes) {
  Orientation orientation;
  orientation.add_exif(bytes);
  return orientation.value();
}

TEST(Orientation, DamagedMetadataMeanUpright) {
  EXPECT_EQ(of_exif(tiff(3, 6)), 6);
  EXPECT_EQ(of_exif(tiff(4, 8)), 8);
  for (const int64_t number : {0, 9, 255, 65535}) EXPECT_EQ(of_exif(tiff(3, number)), 1) << number;
  EXPECT_EQ(of_exif(tiff(2, 6)), 1);  // a text
  EXPECT_EQ(of_exif("II" + little(42, 2) + little(0xFFFFFFF0, 4)), 1);
  EXPECT_EQ(of_exif("MM\0\x2A"), 1);
  EXPECT_EQ(of_exif(""), 1);
  const std::string whole = tiff(3, 6, 65535);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_EQ(of_exif(whole.substr(0, size)), 1) << size;
}

TEST(Orientation, ExifCountsBeforeXmp) {
  Orientation orientation;
  orientation.add_xmp("<tiff:Orientation>6</tiff:Orientation>");
  EXPECT_EQ(orientation.value(), 6);
  orientation.add_exif(tiff(3, 1));
  EXPECT_EQ(orientation.value(), 1);
}

TEST(Orientation, XmpIsAnAttributeOrAnElement) {
  for (const auto& [packet, expected] : {std::pair("a tiff:Orientation=\"8\"", 8),
                                         {"<tiff:Orientation>3<", 3},
                                         {"tiff:Orientation tiff:Orientation=\"5\"", 5},
                                         {"tiff:Orientation=\"", 1},
                                         {"exif:Orientation=\"8\"", 1},
                                         {"tiff:Orientation=\"0\"", 1}}) {
    Orientation orientation;
    orientation.add_xmp(packet);
    EXPECT_EQ(orientation.value(), expected) << packet;
  }
}

}  // namespace
}  // namespace temper::media
