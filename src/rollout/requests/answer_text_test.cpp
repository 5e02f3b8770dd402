#include "rollout/requests/answer_text.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace temper::rollout {
namespace {

// a to z, é in its two bytes (26, 27), and a special token (28) of three letters.
tokenizers::Tokenizer letters_and_a_token() {
  std::string vocabulary;
  for (int i = 0; i < 26; ++i) vocabulary += fmt::format(R"("{}": {}, )", static_cast<char>('a' + i), i);
  return tokenizers::Tokenizer::from_json(
      R"({"model": {"type": "BPE", "vocab": {)" + vocabulary + R"("Ã": 26, "©": 27}, "merges": []},
          "added_tokens": [{"id": 28, "content": "xyz", "special": true, "single_word": false, "lstrip": false,
                            "rstrip": false, "normalized": false}],
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})",
      "letters.json");
}

const std::vector<int32_t> kIds{0, 28, 1, 26, 27, 2, 26, 28, 0};  // a xyz b é c, half an é, xyz a

struct Said {
  std::string pieces, text;
  bool stopped = false;
};

Said say(const tokenizers::Tokenizer& tokenizer, const std::vector<std::string>& stops, bool skip) {
  AnswerText text(tokenizer, stops, skip);
  Said said;
  for (const int32_t id : kIds) {
    said.pieces += text.push(id);
    EXPECT_EQ(said.pieces, text.text().substr(0, said.pieces.size()));
    if (text.stopped()) break;
  }
  said.pieces += text.finish();
  return {said.pieces, text.text(), text.stopped()};
}

TEST(AnswerText, IsWhatTheIdsSayWhateverTheStopStrings) {
  const tokenizers::Tokenizer tokenizer = letters_and_a_token();
  for (const bool skip : {false, true})
    for (const std::vector<std::string>& stops :
         {std::vector<std::string>{}, {"never"}, {"abx", "bd"}, {"zz", "cxyzb", "aa"}}) {
      const Said said = say(tokenizer, stops, skip);
      EXPECT_FALSE(said.stopped);
      EXPECT_EQ(said.text, tokenizer.decode(kIds, skip));
      EXPECT_EQ(said.pieces, said.text);
    }
}

TEST(AnswerText, EndsBeforeTheFirstStopString) {
  const tokenizers::Tokenizer tokenizer = letters_and_a_token();
  EXPECT_EQ(say(tokenizer, {"b\xC3\xA9", "zb"}, false).text, "axy");
  EXPECT_EQ(say(tokenizer, {"ab"}, false).text, tokenizer.decode(kIds));  // not where the token is written
  EXPECT_EQ(say(tokenizer, {"ab"}, true).text, "");
  EXPECT_EQ(say(tokenizer, {"never", "\xC3\xA9"}, true).pieces, "ab");
  EXPECT_TRUE(say(tokenizer, {"c"}, true).stopped);
}

// What may be the beginning of a stop string is not printed before it is certain.
TEST(AnswerText, HoldsBackWhatMayBecomeAStopString) {
  const tokenizers::Tokenizer tokenizer = letters_and_a_token();
  AnswerText text(tokenizer, {"bcd", "cc"}, true);
  EXPECT_EQ(text.push(0), "a");
  EXPECT_EQ(text.push(1), "");
  EXPECT_EQ(text.push(2), "");
  EXPECT_EQ(text.push(4), "bce");
  EXPECT_EQ(text.push(2), "");
  EXPECT_EQ(text.finish(), "c");
  EXPECT_EQ(text.text(), "abcec");
}

TEST(AnswerText, NamesOfSpecialTokensAreStopTokens) {
  const tokenizers::Tokenizer tokenizer = letters_and_a_token();
  EXPECT_EQ(stop_tokens({"a", "xyz", "never", "xyz "}, tokenizer), std::vector<int32_t>{28});
  EXPECT_TRUE(stop_tokens({}, tokenizer).empty());
}

}  // namespace
}  // namespace temper::rollout
