#include "data/rows/token_rows.h"

#include <gtest/gtest.h>

#include "data/sources/test_support.h"

namespace temper::data {
namespace {

EncodedRow encode_tokens(std::string_view row, RowOptions options = {}) {
  options.eos_id = 3000;
  return RowEncoder(qwen(), chatml(), options).encode(Json::parse(row, "row"));
}

std::string error_of_tokens(std::string_view row) {
  return message_of([&] { encode_tokens(row); });
}

TEST(TokenRows, IdsAreLearntAsTheyStand) {
  const EncodedRow row = encode_tokens(R"({"input_ids": [5, 6, 7]})");
  EXPECT_EQ(row.format, RowFormat::kTokens);
  EXPECT_EQ(row.examples.at(0).ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(row.examples.at(0).loss_mask, (std::vector<uint8_t>{1, 1, 1}));
}

TEST(TokenRows, LabelsSayWhatIsATargetAndTheMaskWhatIsPadding) {
  const std::string row =
      R"({"input_ids": [0, 0, 5, 6, 7, 0], "labels": [-100, -100, -100, 6, 7, -100], "attention_mask": [0, 0, 1, 1, 1, 0]})";
  const Example example = encode_tokens(row).examples.at(0);
  EXPECT_EQ(example.ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(example.loss_mask, (std::vector<uint8_t>{0, 1, 1}));
  RowOptions all;
  all.loss = LossOn::kAll;
  EXPECT_EQ(encode_tokens(row, all).examples.at(0).loss_mask, (std::vector<uint8_t>{1, 1, 1}));
  RowOptions cut;
  cut.max_length = 2;
  EXPECT_EQ(encode_tokens(row, cut).examples.at(0).ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(encode_tokens(R"({"input_ids": [5, 6], "labels": [-100, -100]})").status, RowStatus::kNoTargets);
  EXPECT_EQ(encode_tokens(R"({"input_ids": "[5, 6]", "labels": ""})").examples.at(0).size(),
            2);  // a table of texts
}

TEST(TokenRows, PositionsBeginBehindThePadding) {
  const Example example =
      encode_tokens(
          R"({"input_ids": [0, 0, 5, 6], "attention_mask": [0, 0, 1, 1], "position_ids": [1, 1, 0, 1]})")
          .examples.at(0);
  EXPECT_EQ(example.ids, (std::vector<int32_t>{5, 6}));
}

// Rows of padding up to the vocabulary's size: the model's, where it is the larger one.
TEST(TokenRows, IdsAreThoseOfTheModel) {
  RowOptions options;
  options.vocab_size = qwen().vocab_size() + 2;
  const std::string row = fmt::format(R"({{"input_ids": [5, {}]}})", qwen().vocab_size() + 1);
  EXPECT_EQ(encode_tokens(row, options).examples.at(0).ids.back(), qwen().vocab_size() + 1);
  EXPECT_NE(error_of_tokens(row), "no error");
  const Json parsed = Json::parse(R"({"input_ids": [5], "id": 1})", "row");
  EXPECT_EQ(RowEncoder(qwen(), chatml(), {}).unused_of(parsed), std::vector<std::string>{"id"});
}

TEST(TokenRows, ErrorsNameTheEntry) {
  for (const auto& [row, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"({"input_ids": []})", "input_ids is empty, expected at least one token"},
           {R"({"input_ids": 3})", "input_ids must be an array of integers, found an integer"},
           {R"({"input_ids": [1, 2.5]})", "input_ids[1] must be an integer, found a number"},
           {R"({"input_ids": [1, -1]})",
            fmt::format("input_ids[1] is -1, expected 0 to {}", qwen().vocab_size() - 1)},
           {R"({"input_ids": [1, 99999999]})",
            fmt::format("input_ids[1] is 99999999, expected 0 to {}", qwen().vocab_size() - 1)},
           {R"({"input_ids": [1, 2], "labels": [1]})",
            "labels has 1 entries, input_ids has 2; expected one for each id"},
           {R"({"input_ids": [1, 2, 3], "labels": [2, 3, -100]})",
            "labels[0] is 2, where input_ids has 1; expected the same id or -100 (they seem to be shifted: "
            "each label is at the position of its own token)"},
           {R"({"input_ids": [1, 2, 3], "labels": [1, 5, -100]})",
            "labels[1] is 5, where input_ids has 2; expected the same id or -100"},
           {R"({"input_ids": [1, 2], "labels": [-100, 5]})",
            "labels[1] is 5, where input_ids has 2; expected the same id or -100"},
           {R"({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]})",
            "attention_mask[1] is 0 between tokens; expected zeros at the ends alone, where padding is"},
           {R"({"input_ids": [1, 2, 3, 4], "position_ids": [0, 1, 0, 1]})",
            "position_ids[2] is 0, expected 2: a row is one document; give each document a row of its own, "
            "Temper packs them"},
           {R"({"input_ids": [1, 2], "position_ids": [4, 5]})",
            "position_ids[0] is 4, expected 0: a row is one document"},
           {R"({"input_ids": [1, 2], "position_ids": [0]})",
            "position_ids has 1 entries, input_ids has 2; expected one for each id"},
           {R"({"input_ids": [1], "attention_mask": [0]})",
            "attention_mask has no 1; expected tokens that are not padding"}})
    EXPECT_EQ(error_of_tokens(row), expected) << row;
  EXPECT_EQ(message_of([] {
              RowEncoder(qwen(), chatml(), {}).question_of(Json::parse(R"({"input_ids": [1]})", "row"));
            }),
            "the row holds tokens, and a question must be text");
}

}  // namespace
}  // namespace temper::data
