#include "data/rows/media_positions.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper::data {
namespace {

using Ints = std::vector<int32_t>;

// "ttppppvv": text, pictures and videos.
std::vector<TokenKind> kinds_of(std::string_view tokens) {
  std::vector<TokenKind> kinds;
  for (const char each : tokens)
    kinds.push_back(each == 't' ? TokenKind::kText : each == 'p' ? TokenKind::kPicture : TokenKind::kVideo);
  return kinds;
}

struct Row {
  std::string tokens;
  std::vector<MediaGrid> pictures = {}, videos = {};
  Ints lengths = {}, continued = {};  // without lengths it is one document
};

MediaPositions count(const Row& row, const MediaPositionRules& rules = {}) {
  const std::vector<TokenKind> kinds = kinds_of(row.tokens);
  const Ints lengths = row.lengths.empty() ? Ints{static_cast<int32_t>(kinds.size())} : row.lengths;
  return media_positions({kinds, lengths, row.pictures, row.videos, row.continued}, rules);
}

Ints line(const MediaPositions& positions, int which) {
  const auto all = positions.positions.narrow(0, which, 1).contiguous();
  const auto values = all.values<int32_t>();
  return {values.begin(), values.end()};
}

TEST(MediaPositions, TextCountsOnInAllThree) {
  const MediaPositions found = count({.tokens = "tttt", .lengths = {3, 1}});
  for (int which = 0; which < 3; ++which) EXPECT_EQ(line(found, which), (Ints{0, 1, 2, 0}));
  EXPECT_EQ(found.text_next, (Ints{3, 1}));
  EXPECT_EQ(found.decoding_next, (Ints{3, 1}));
}

TEST(MediaPositions, APictureStandsStillInTime) {
  // 2 x 3 tokens, then 1 x 1.
  const MediaPositions found = count({.tokens = "ttpppppptptt", .pictures = {{1, 4, 6}, {1, 2, 2}}});
  EXPECT_EQ(line(found, 0), (Ints{0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 8}));
  EXPECT_EQ(line(found, 1), (Ints{0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8}));
  EXPECT_EQ(line(found, 2), (Ints{0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(found.text_next, (Ints{9}));
  // The longer side counts, and the highest position of a document that ends in a picture.
  EXPECT_EQ(count({.tokens = "tppp", .pictures = {{1, 6, 2}}}).decoding_next, (Ints{4}));
}

// Each document by itself, and those that continue one from behind it.
TEST(MediaPositions, RestartInEachDocument) {
  const Row packed{
      .tokens = "tpptttpptt", .pictures = {{1, 2, 4}, {1, 4, 2}}, .videos = {}, .lengths = {4, 6}};
  const MediaPositions found = count(packed);
  const MediaPositions first = count({.tokens = "tppt", .pictures = {packed.pictures[0]}}),
                       second = count({.tokens = "ttpptt", .pictures = {packed.pictures[1]}});
  for (int which = 0; which < 3; ++which) {
    Ints expected = line(first, which);
    const Ints rest = line(second, which);
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(line(found, which), expected);
  }
  EXPECT_EQ(found.decoding_next, (Ints{first.decoding_next[0], second.decoding_next[0]}));
  // Two answers to a prompt that ends with a picture: as in rows of their own.
  const MediaPositions shared = count({.tokens = "tpptttppt",
                                       .pictures = {{1, 2, 4}, {1, 4, 2}},
                                       .lengths = {3, 2, 4},
                                       .continued = {-1, 0, 0}});
  EXPECT_EQ(line(shared, 0), (Ints{0, 1, 1, 3, 4, 3, 4, 4, 6}));
  EXPECT_EQ(line(shared, 1), (Ints{0, 1, 1, 3, 4, 3, 4, 5, 6}));
  EXPECT_EQ(shared.decoding_next, (Ints{3, 5, 7}));
}

// Three frames of 1 x 2, 1.75 seconds apart, 2 positions a second.
TEST(MediaPositions, FourRulesForVideos) {
  const Row row{.tokens = "tvvvvvvt", .pictures = {}, .videos = {{3, 2, 4, 1.75}}};
  struct Expected {
    const char* name;
    Ints time;
    int32_t text_next, decoding_next;
  };
  for (const Expected& each : {Expected{"qwen", {0, 1, 1, 4, 4, 8, 8, 9}, 10, 10},
                               {"v4_57", {0, 1, 1, 3, 3, 5, 5, 6}, 7, 7},
                               {"v5_17", {0, 1, 1, 3, 3, 5, 5, 3}, 4, 6},
                               {"v5_24", {0, 1, 1, 4, 4, 8, 8, 3}, 4, 9}}) {
    const MediaPositions found = count(row, {.video = video_rule(each.name), .tokens_per_second = 2});
    EXPECT_EQ(line(found, 0), each.time) << each.name;
    EXPECT_EQ(line(found, 2), (Ints{0, 1, 2, 1, 2, 1, 2, each.time.back()})) << each.name;
    EXPECT_EQ(found.text_next, (Ints{each.text_next})) << each.name;
    EXPECT_EQ(found.decoding_next, (Ints{each.decoding_next})) << each.name;
  }
  // Half a second: no time passes by whole seconds.
  const Row fast{.tokens = "vvv", .pictures = {}, .videos = {{3, 2, 2, 0.5}}};
  EXPECT_EQ(line(count(fast, {.video = VideoRule::kV457, .tokens_per_second = 2}), 0), (Ints{0, 0, 0}));
  EXPECT_EQ(line(count(fast, {.tokens_per_second = 2}), 0), (Ints{0, 1, 2}));
  // Qwen2-VL: a frame a position, whatever the seconds.
  EXPECT_EQ(line(count(fast), 0), (Ints{0, 1, 2}));
  EXPECT_EQ(error_of([] { video_rule("v5"); }),
            "the rule for positions of videos is 'v5', expected one of [qwen, v4_57, v5_17, v5_24]");
}

TEST(MediaPositions, FramesThatTextSeparatesAreAsPictures) {
  const Row row{.tokens = "tvvttvvt", .pictures = {}, .videos = {{2, 2, 4, 9}}};
  for (const VideoRule rule : {VideoRule::kQwen, VideoRule::kV517}) {
    const MediaPositions found = count(row, {.video = rule, .tokens_per_second = 2, .frames_apart = true});
    EXPECT_EQ(line(found, 0), (Ints{0, 1, 1, 3, 4, 5, 5, 7}));
    EXPECT_EQ(line(found, 2), (Ints{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST(MediaPositions, ContradictionsAreRefused) {
  const auto error = [](const Row& row, const MediaPositionRules& rules = {}) {
    return error_of([&] { count(row, rules); });
  };
  EXPECT_EQ(error({.tokens = "tppt", .pictures = {{1, 4, 4}}}),
            "tokens 1 to 3 are 2 of picture 0, whose grid makes 1 x 2 x 2 = 4");
  EXPECT_EQ(error({.tokens = "tptpt", .pictures = {{1, 2, 2}}}),
            "token 3 is of picture 1, but only 1 are given");
  EXPECT_EQ(error({.tokens = "tpt", .pictures = {{1, 2, 2}, {1, 2, 2}}}),
            "the tokens are of 1 pictures and 0 videos, but 2 and 0 are given");
  EXPECT_EQ(
      error({.tokens = "tvt", .pictures = {}, .videos = {{1, 3, 2}}}),
      "video 0 has a grid of 1 x 3 x 2 patches, needs at least 1 frames and sides that are multiples of 2");
  EXPECT_EQ(error({.tokens = "tp", .pictures = {{2, 2, 2}}}),
            "picture 0 has a grid of 2 x 2 x 2 patches, needs 1 frame and sides that are multiples of 2");
  EXPECT_EQ(error({.tokens = "vv", .pictures = {}, .videos = {{2, 2, 2, -1}}}),
            "video 0 has -1 seconds between its frames, needs 0 to 86400");
  EXPECT_EQ(error({.tokens = "tv", .pictures = {}, .videos = {{2, 2, 2}}}, {.frames_apart = true}),
            "video 0 ends after 1 of its 2 frames");
  EXPECT_EQ(error({.tokens = "tvvv", .pictures = {}, .videos = {{2, 2, 4}}}, {.frames_apart = true}),
            "tokens 1 to 4 are 3 of video 0, frame 0, whose grid makes 1 x 1 x 2 = 2");
  EXPECT_EQ(error({.tokens = "tt", .lengths = {3}}), "documents of more than the 2 tokens of the pass");
  EXPECT_EQ(error({.tokens = "tt", .lengths = {1}}), "documents of 1 tokens in all, but 2 tokens");
  // A picture is never cut by the border of a document.
  EXPECT_EQ(error({.tokens = "tpppp", .pictures = {{1, 4, 4}}, .lengths = {3, 2}}),
            "tokens 1 to 3 are 2 of picture 0, whose grid makes 1 x 2 x 2 = 4");
}

}  // namespace
}  // namespace temper::data
