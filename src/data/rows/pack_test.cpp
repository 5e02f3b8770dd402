#include "data/rows/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

Example example_of(std::vector<int32_t> ids, std::vector<uint8_t> mask) {
  Example example;
  example.ids = std::move(ids);
  example.loss_mask = std::move(mask);
  return example;
}

Document document_of(int64_t row, int64_t length) {
  Document document;
  document.row = row;
  for (int64_t i = 0; i < length; ++i) document.example.ids.push_back(static_cast<int32_t>(row * 1000 + i));
  document.example.loss_mask.assign(static_cast<size_t>(length), 1);
  return document;
}

TEST(Pack, TargetsAreTheNextTokensOfTheSameDocument) {
  const DocumentGroup group = {{0, 0, 0, example_of({1, 2, 3, 4}, {1, 0, 1, 1})},
                               {1, 0, 3, example_of({5}, {1})},
                               {2, 0, 0, example_of({6, 7}, {1, 1})}};
  const PackedRow row = pack(group);
  EXPECT_EQ(row.ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(row.targets, (std::vector<int32_t>{kIgnore, 3, 4, kIgnore, kIgnore, 7, kIgnore}));
  EXPECT_EQ(row.document_lengths, (std::vector<int64_t>{4, 1, 2}));
  EXPECT_EQ(row.sources, (std::vector<int32_t>{0, 3, 0}));
  EXPECT_EQ(row.num_targets(), 3);
  for (const Document& document : group)
    EXPECT_EQ(pack({&document, 1}).num_targets(), document.example.num_targets());
}

TEST(Pack, BestFitIntoTheFullestThatHasRoom) {
  Packer packer({Packing::kBestFit, 10, 2});
  for (const int64_t length : {6, 7, 4, 3}) packer.add(document_of(length, length));
  ASSERT_EQ(packer.closed().size(), 2u);  // 6 + 4 fills the first, 3 needs the second
  EXPECT_EQ(packer.closed()[0][1].row, 4);
  EXPECT_EQ(packer.closed()[1][1].row, 3);
  while (!packer.closed().empty()) packer.take();
  EXPECT_EQ(packer.closed_tokens(), 0);
  for (const int64_t length : {6, 8, 9}) packer.add(document_of(length, length));
  ASSERT_EQ(packer.closed().size(), 1u);  // the fullest
  EXPECT_EQ(packer.closed()[0][0].row, 8);
  packer.flush();
  ASSERT_EQ(packer.closed().size(), 3u);
  EXPECT_EQ(packer.closed()[1][0].row, 6);
  while (!packer.closed().empty()) packer.take();
  EXPECT_EQ(packer.closed_tokens(), 0);
  for (const int64_t length : {5, 6, 3}) packer.add(document_of(length, length));
  ASSERT_EQ(packer.open().size(), 2u);  // 3 goes to the 6, though the 5 is older and has room
  EXPECT_EQ(packer.open()[1].size(), 2u);
}

TEST(Pack, SequentialKeepsTheOrder) {
  Packer packer({Packing::kSequential, 10, 256});
  for (const int64_t length : {6, 7, 3, 1, 9}) packer.add(document_of(length, length));
  packer.flush();
  std::vector<std::vector<int64_t>> rows;
  for (const DocumentGroup& group : packer.closed()) {
    rows.emplace_back();
    for (const Document& document : group) rows.back().push_back(document.row);
  }
  EXPECT_EQ(rows, (std::vector<std::vector<int64_t>>{{6}, {7, 3}, {1, 9}}));
}

// Lengths as conversations have them: log-normal, a median of 350 tokens, 5 % above 1,800.
TEST(Pack, BestFitFillsNearlyAllOfTheRows) {
  for (const int64_t max_tokens : {2048, 4096, 16384}) {
    const Random random(3, RandomPurpose::kData);
    Packer packer({Packing::kBestFit, max_tokens});
    for (uint64_t i = 0; i < 20'000; ++i) {
      const double length = std::exp(std::log(350.0) + random.normal(i));
      packer.add(document_of(0, std::clamp<int64_t>(std::llround(length), 1, max_tokens)));
    }
    packer.flush();
    int64_t tokens = 0;
    for (const DocumentGroup& group : packer.closed()) tokens += num_tokens(group);
    const auto room = static_cast<double>(packer.closed().size()) * static_cast<double>(max_tokens);
    EXPECT_GE(static_cast<double>(tokens) / room, 0.97) << max_tokens;
  }
}

// For many streams of documents: none is lost, split or doubled, none is over the budget, and the same
// stream gives the same groups.
TEST(Pack, KeepsItsPromisesForRandomLengths) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Random random(seed, RandomPurpose::kData);
    const auto budget = static_cast<int64_t>(1 + random.below(64, 0));
    const PackOptions options{static_cast<Packing>(seed % 3), budget,
                              static_cast<int64_t>(1 + random.below(9, 1))};
    Packer packer(options), again(options);
    std::vector<int64_t> lengths;
    for (uint64_t i = 0; i < 200; ++i)
      lengths.push_back(static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(budget), i + 2)));
    for (size_t i = 0; i < lengths.size(); ++i) {
      packer.add(document_of(static_cast<int64_t>(i), lengths[i]));
      again.add(document_of(static_cast<int64_t>(i), lengths[i]));
      EXPECT_LE(packer.open().size(), static_cast<size_t>(options.window));
    }
    packer.flush();
    again.flush();
    std::vector<int64_t> seen;
    for (const DocumentGroup& group : packer.closed()) {
      const PackedRow row = pack(group);
      EXPECT_LE(row.size(), budget);
      EXPECT_EQ(row.targets.size(), row.ids.size());
      EXPECT_TRUE(options.packing != Packing::kNone || group.size() == 1);
      for (const Document& document : group) {
        seen.push_back(document.row);
        EXPECT_EQ(document.example.size(), lengths[static_cast<size_t>(document.row)]);
      }
    }
    ASSERT_EQ(packer.closed().size(), again.closed().size());
    for (size_t i = 0; i < again.closed().size(); ++i)
      EXPECT_EQ(pack(packer.closed()[i]).ids, pack(again.closed()[i]).ids);
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen.size(), lengths.size());
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
  }
}

TEST(Pack, RefusesWhatCannotBe) {
  EXPECT_NE(message_of([] { Packer({Packing::kBestFit, 0, 4}); }).find("max_length"), std::string::npos);
  EXPECT_NE(message_of([] { Packer({Packing::kBestFit, 8, 0}); }).find("window"), std::string::npos);
  Packer packer({Packing::kBestFit, 4, 4});
  EXPECT_EQ(message_of([&] { packer.add(document_of(0, 5)); }),
            "[data] a document of 5 tokens is longer than max_length, 4");
}

}  // namespace
}  // namespace temper::data
