#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/json/json.h"
#include "tokenizers/splitting/fast_splitters.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

const std::string kGoldens = TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_";

// Tokens that are found only as whole words look at what stands around them; the files have one to test that.
Tokenizer without_whole_words(const std::string& name) {
  const std::string path = kGoldens + name + "/tokenizer.json";
  Json file = Json::parse_file(path);
  Json tokens = file.at("added_tokens");
  for (Json& token : tokens.as_array()) token.set("single_word", false);
  file.set("added_tokens", std::move(tokens));
  if (name == "deepseek") {  // its pattern in the spelling that is known
    Json steps = file.at("pre_tokenizer");
    for (auto& [key, list] : steps.as_object())
      if (key == "pretokenizers")
        list.as_array()[2].set("pattern", Json::Object{{"Regex", known_patterns().back()}});
    file.set("pre_tokenizer", std::move(steps));
  }
  return Tokenizer::from_parsed(file, path);
}

// Texts of what patterns and merges care about.
std::string text_of(std::mt19937& random) {
  constexpr std::array<std::string_view, 30> kParts = {
      "a",  "B",      "the", "'s",  "'",  "ll",  " ",    "  ", "\n",      "\r\n",
      "\t", "1",      "234", ".",   "/",  "#",   "### ", "é",  "e\u0301", "北京",
      "ß",  "\u00A0", "😀",   "x y", "Ab", "!\n", " \n",  "ſ",  "\u0301",  "<|im_end|>"};
  std::string text;
  for (int i = 0; i < 14; ++i) text += kParts[random() % kParts.size()];
  return text;
}

// Each beginning of a text that reaches behind such a place has the tokens of both parts.
TEST(WordBorders, DivideTexts) {
  size_t borders = 0;
  for (const std::string name : {"qwen", "qwen35", "llama3", "gpt2", "deepseek", "o200k"}) {
    const Tokenizer tokenizer = without_whole_words(name);
    ASSERT_TRUE(tokenizer.splits_at_words()) << name;
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) {
      const std::string text = text_of(random);
      const Encoding whole = tokenizer.encode_with_offsets(text);
      for (size_t token = 1; token < whole.ids.size(); ++token) {
        const size_t at = whole.spans[token].begin;
        if (whole.spans[token - 1].end > at || !is_word_border(text, at)) continue;
        ++borders;
        for (size_t end = at + 2; end <= text.size(); ++end) {
          if (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) continue;
          std::vector<int32_t> parts(whole.ids.begin(),
                                     whole.ids.begin() + static_cast<std::ptrdiff_t>(token));
          for (const int32_t id : tokenizer.encode(text.substr(at, end - at))) parts.push_back(id);
          ASSERT_EQ(tokenizer.encode(text.substr(0, end)), parts) << name << " " << at << " of " << text;
        }
      }
    }
  }
  EXPECT_GT(borders, 500u);
}

// Their pieces reach over words, something is put before each part, or tokens look around.
TEST(WordBorders, OtherTokenizersSaySo) {
  for (const std::string name : {"llama2", "gemma", "unigram", "gpt2_prefixed", "unigram_words", "o200k"})
    EXPECT_FALSE(Tokenizer::load(kGoldens + name).splits_at_words()) << name;
}

}  // namespace
}  // namespace temper::tokenizers
