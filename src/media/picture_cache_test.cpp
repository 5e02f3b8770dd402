#include "media/picture_cache.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace temper::media {
namespace {

constexpr int64_t kBytes = 10 * 10 * Picture::kPixelBytes;

Picture filled(uint8_t value, Size size = {10, 10}) {
  Picture picture(size);
  std::fill_n(picture.row(0), picture.bytes(), value);
  return picture;
}

int of(PictureCache& cache, const std::string& key, uint8_t value) {
  return cache.get(key, [&] { return filled(value); })->row(0)[0];
}

TEST(PictureCache, KeepsWhatWasAskedForLast) {
  PictureCache cache(2 * kBytes);
  EXPECT_EQ(of(cache, "a", 1), 1);
  EXPECT_EQ(of(cache, "b", 2), 2);
  EXPECT_EQ(of(cache, "a", 99), 1);
  EXPECT_EQ(of(cache, "c", 3), 3);  // b goes
  EXPECT_EQ(cache.made(), 3);
  EXPECT_EQ(of(cache, "a", 98), 1);
  EXPECT_EQ(of(cache, "b", 97), 97);
  EXPECT_EQ(cache.made(), 4);
  EXPECT_EQ(cache.bytes(), 2 * kBytes);
}

TEST(PictureCache, APictureLargerThanTheCacheIsNotKept) {
  PictureCache cache(2 * kBytes);
  of(cache, "a", 1);
  EXPECT_EQ(cache.get("large", [] { return filled(5, {100, 100}); })->width(), 100);
  EXPECT_EQ(cache.bytes(), kBytes);
  EXPECT_EQ(of(cache, "a", 99), 1);
}

TEST(PictureCache, APictureOutlivesItsPlace) {
  PictureCache cache(kBytes);
  const auto held = cache.get("a", [] { return filled(1); });
  of(cache, "b", 2);
  EXPECT_EQ(held->row(9)[39], 1);
}

TEST(PictureCache, ManyThreadsGetThePicturesOfTheirKeys) {
  PictureCache cache(5 * kBytes);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 2000; ++i) {
        const int key = (i * (thread + 3)) % 11;
        wrong[static_cast<size_t>(thread)] +=
            of(cache, std::to_string(key), static_cast<uint8_t>(key)) == key ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
  EXPECT_EQ(cache.bytes(), 5 * kBytes);
}

TEST(PictureCache, KeysNameContents) {
  EXPECT_EQ(content_key("abc"), content_key("abc"));
  EXPECT_NE(content_key("abc"), content_key("abd"));
  EXPECT_EQ(content_key("").size(), 32U);
}

}  // namespace
}  // namespace temper::media
