#include "data/rows/row_length.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace temper::data {
namespace {

// An example of `size` tokens, of which those from `target` on are targets.
Example example_of(int64_t size, int64_t target) {
  Example example;
  example.ids.resize(static_cast<size_t>(size));
  std::iota(example.ids.begin(), example.ids.end(), 0);
  for (int64_t i = 0; i < size; ++i) example.loss_mask.push_back(i >= target);
  return example;
}

EncodedRow row_of(std::vector<Example> examples) {
  EncodedRow row;
  row.examples = std::move(examples);
  row.full_length = row.num_tokens();
  return row;
}

RowOptions options_of(Overflow overflow, int64_t max_length = 4) {
  RowOptions options;
  options.max_length = max_length;
  options.overflow = overflow;
  return options;
}

TEST(RowLength, TruncatesToTheBeginning) {
  EncodedRow row = row_of({example_of(10, 2)});
  fit(row, options_of(Overflow::kTruncate));
  ASSERT_EQ(row.examples.size(), 1u);
  EXPECT_EQ(row.examples[0].ids, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(row.tokens_cut, 6);
  EXPECT_TRUE(row.was_too_long);
  EXPECT_EQ(row.status, RowStatus::kKept);
}

TEST(RowLength, PiecesWithoutATargetAreLeftOut) {
  EncodedRow row = row_of({example_of(10, 5)});
  fit(row, options_of(Overflow::kSplit));
  ASSERT_EQ(row.examples.size(), 2u);
  EXPECT_EQ(row.examples[0].ids, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(row.examples[1].ids, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(row.tokens_cut, 4);
}

TEST(RowLength, DropsOrRefusesWhatIsTooLong) {
  EncodedRow row = row_of({example_of(5, 0)});
  fit(row, options_of(Overflow::kDrop));
  EXPECT_EQ(row.status, RowStatus::kTooLong);
  EXPECT_TRUE(row.examples.empty());
  EncodedRow refused = row_of({example_of(5, 0)});
  EXPECT_THROW(fit(refused, options_of(Overflow::kError)), Error);
  EncodedRow exact = row_of({example_of(4, 0)});
  fit(exact, options_of(Overflow::kError));
  EXPECT_EQ(exact.status, RowStatus::kKept);
}

TEST(RowLength, APreferenceIsKeptWholeOrNotAtAll) {
  RowOptions options = options_of(Overflow::kTruncate);
  options.goal = Goal::kAny;
  EncodedRow row = row_of({example_of(6, 2), example_of(6, 5)});
  row.format = RowFormat::kPreference;
  fit(row, options);
  EXPECT_TRUE(row.examples.empty());
  EXPECT_EQ(row.status, RowStatus::kNoTargets);
}

TEST(RowLength, PromptsNeedNoTarget) {
  EncodedRow row = row_of({example_of(3, 3)});
  row.format = RowFormat::kPromptOnly;
  fit(row, options_of(Overflow::kTruncate));
  EXPECT_EQ(row.examples.size(), 1u);
}

}  // namespace
}  // namespace temper::data
