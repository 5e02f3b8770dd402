#include "data/sources/reader.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/sources/test_support.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

RowCounts counted_rows(const std::vector<std::string>& lines, const RowOptions& options) {
  const TemporaryDirectory folder;
  const Source source({write_lines(folder, "rows.jsonl", lines)});
  const RowEncoder encoder(qwen(), chatml(), options);
  RowCounts counts;
  for (int64_t i = 0; i < source.size(); ++i) counts.add(read_row(source, encoder, i), OnBadRow::kCount);
  return counts;
}

const std::string kLongText = R"({"text": "1 2 3 4 5 6 7 8"})",
                  kEmptyTurn = R"({"messages": [{"role": "user", "content": "a"},
  {"role": "assistant", "content": ""}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST(RowCounts, SayWhatBecameOfEachKindOfRow) {
  RowOptions options;
  options.max_length = 8;
  options.overflow = Overflow::kDrop;
  EXPECT_EQ(counted_rows({kLongText, R"({"text": "1 2"})"}, options).describe(),
            "kept 1 of 2 rows; dropped 1 too long");
  options.overflow = Overflow::kSplit;
  EXPECT_EQ(counted_rows({kLongText, R"({"text": "1 2"})"}, options).describe(),
            "kept 2 of 2 rows (1 split)");
  options.max_length = 0;
  EXPECT_EQ(counted_rows({one_line(kEmptyTurn)}, options).describe(),
            "kept 1 of 1 rows (1 empty answers not trained)");
  // Both answers of a preference are one row, which is not split.
  options.goal = Goal::kAny;
  EXPECT_EQ(counted_rows({R"({"prompt": "a", "chosen": "b", "rejected": "c"})"}, options).describe(),
            "kept 1 of 1 rows");
}

TEST(RowCounts, LossesAreCountedInRows) {
  RowCounts counts;
  counts.lost = {{"a", 1}, {"b", 2}};
  EXPECT_EQ(counts.describe_lost(), "a (1 row); b (2 rows)");
  RowCounts more;
  more.lost = {{"b", 1}};
  more.unused = {{"id", 3}};
  counts += more;
  EXPECT_EQ(counts.describe_lost(), "a (1 row); b (3 rows)");
  EXPECT_EQ(RowCounts::from_json(counts.to_json()).describe_lost(), counts.describe_lost());
  EXPECT_EQ(RowCounts::from_json(counts.to_json()).describe_unused(), "id (3)");
}

// Each count is another one, so that none passes for another.
TEST(RowCounts, AddUpCountByCount) {
  Json::Object numbers;
  for (const auto& [name, value] : RowCounts().to_json().as_object())
    numbers.emplace_back(name, std::ssize(numbers) + 1);
  ASSERT_EQ(numbers.size(), 15u);
  RowCounts counts = RowCounts::from_json(numbers);
  EXPECT_EQ(counts.to_json(), Json(numbers));
  counts += RowCounts::from_json(numbers);
  for (const auto& [name, value] : numbers)
    EXPECT_EQ(counts.to_json().at(name).as_int(), 2 * value.as_int()) << name;
}

// Memory that ran out says nothing about the row.
TEST(Reader, OnlyWhatTheRowIsToBlameForIsABadRow) {
  const TemporaryDirectory folder;
  const Source source(
      {write_lines(folder, "rows.jsonl", {R"({"messages": [{"role": "user", "content": "a"}]})"})});
  const auto read_with = [&](ErrorKind kind) {
    const ChatRenderer render = [kind](const Json&, bool, const Json&) -> RenderedChat {
      throw Error("there is no more", kind);
    };
    return read_row(source, RowEncoder(qwen(), render, {}), 0).error;
  };
  EXPECT_TRUE(read_with(ErrorKind::kInput).ends_with("rows.jsonl:1] there is no more"));
  EXPECT_EQ(error_of([&] { read_with(ErrorKind::kResources); }, ErrorKind::kResources), "there is no more");
}

}  // namespace
}  // namespace temper::data
