#include "training/objectives/gather_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/launch.h"

namespace temper::training {
namespace {

using data::PackedRow;

// Each number is another one, so that no field passes for another.
data::TokenColumns columns_from(float first) {
  data::TokenColumns columns;
  for (const auto& [column, unknown] : data::TokenColumns::kAll) {
    columns.*column = {first + 0.1f, first + 0.2f};
    first += 0.3f;
  }
  return columns;
}

data::PlacedPicture picture_from(int64_t first) {
  data::PictureFile file;
  file.reference = {fmt::format("place {}", first), fmt::format("path {}", first), std::string("\0bytes", 6)};
  file.folder = fmt::format("folder {}", first);
  return {.first = first + 1,
          .shape = {.resized = {first + 2, first + 3},
                    .grid = preprocessing::Grid{first + 4, first + 5, first + 6},
                    .crops = first + 7,
                    .rows = first + 8,
                    .columns = first + 9,
                    .tokens = first + 10},
          .file = std::make_shared<const data::PictureFile>(std::move(file)),
          .row = first + 11};
}

std::shared_ptr<const data::PicturePixels> pixels_from(float first) {
  data::PicturePixels pixels{unset_array<float>(6, "a test"), 2, 3, {{1, 2, 3}, {4, 5, 6}}};
  for (float& value : pixels.values()) value = first++;
  return std::make_shared<const data::PicturePixels>(std::move(pixels));
}

PackedRow row_of(int32_t first) {
  const auto f = static_cast<float>(first);
  return {.ids = {first, first + 1, first + 2},
          .targets = {first + 3, data::kIgnore, first + 4},
          .document_lengths = {1, 2},
          .sources = {first + 5, first + 6},
          .answers = {{}, {{first + 7, true}, {first + 8, false}}},
          .pictures = {picture_from(first), picture_from(first + 20)},
          .pixels = pixels_from(f),
          .sampled = columns_from(f),
          .experts = {first + 9, -1, first + 10}};
}

// A field that rows get later does not compile here until it is compared, too.
void expect_same(const PackedRow& found, const PackedRow& expected) {
  const auto& [ids, targets, document_lengths, sources, answers, pictures, pixels, sampled, experts] = found;
  EXPECT_EQ(ids, expected.ids);
  EXPECT_EQ(targets, expected.targets);
  EXPECT_EQ(document_lengths, expected.document_lengths);
  EXPECT_EQ(sources, expected.sources);
  ASSERT_EQ(answers.size(), expected.answers.size());
  for (size_t d = 0; d < answers.size(); ++d) {
    ASSERT_EQ(answers[d].size(), expected.answers[d].size());
    for (size_t i = 0; i < answers[d].size(); ++i) {
      const auto& [length, good] = answers[d][i];
      EXPECT_EQ(length, expected.answers[d][i].length);
      EXPECT_EQ(good, expected.answers[d][i].good);
    }
  }
  ASSERT_EQ(pictures.size(), expected.pictures.size());
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto& [first, shape, file, row] = pictures[i];
    EXPECT_EQ(first, expected.pictures[i].first);
    EXPECT_EQ(shape, expected.pictures[i].shape);
    EXPECT_EQ(row, expected.pictures[i].row);
    EXPECT_EQ(file->reference, expected.pictures[i].file->reference);
    EXPECT_EQ(file->folder, expected.pictures[i].file->folder);
  }
  ASSERT_EQ(pixels != nullptr, expected.pixels != nullptr);
  if (pixels) {
    const auto& [memory, rows, columns, grids] = *pixels;
    EXPECT_EQ(rows, expected.pixels->rows);
    EXPECT_EQ(columns, expected.pixels->columns);
    EXPECT_EQ(grids, expected.pixels->grids);
    EXPECT_TRUE(std::ranges::equal(pixels->values(), expected.pixels->values()));
  }
  for (const auto& [column, unknown] : data::TokenColumns::kAll)
    EXPECT_EQ(sampled.*column, expected.sampled.*column);
  EXPECT_EQ(experts, expected.experts);
}

// A rank may have none, or several.
TEST(GatheredRows, KeepEveryField) {
  std::vector<std::vector<PackedRow>> of_rank{{row_of(10), {}}, {}, {row_of(200)}};
  collectives::launch("threads", {.ranks = 3}, [&](collectives::Group& ranks) {
    const auto all = gather_rows(ranks, of_rank[static_cast<size_t>(ranks.rank())]);
    ASSERT_EQ(all.size(), 3u);
    for (size_t r = 0; r < all.size(); ++r) {
      ASSERT_EQ(all[r].size(), of_rank[r].size());
      for (size_t i = 0; i < all[r].size(); ++i) expect_same(all[r][i], of_rank[r][i]);
    }
  });
}

// As rank 0 read them, and each rank its part of their tokens.
TEST(SharedRows, KeepEveryField) {
  collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& ranks) {
    const std::vector<PackedRow> mine = shared_rows(ranks, ranks, "rows", [] {
      return std::vector{row_of(10), row_of(200)};
    });
    ASSERT_EQ(mine.size(), 1u);
    expect_same(mine[0], row_of(ranks.rank() == 0 ? 10 : 200));
  });
}

}  // namespace
}  // namespace temper::training
