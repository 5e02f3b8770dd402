#include "tokenizers/tokens/declared_tokens.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

const std::string kDeclared = TEMPER_SOURCE_DIR "/tests/goldens/declared_tokens/";
constexpr int64_t kVocabSize = 320;  // of a model

using Files = std::vector<std::pair<std::string, std::string>>;

// A folder with the tokenizer.json of kDeclared, whose added token is <|endoftext|>, 280.
Tokenizer load_with(const Files& files, int64_t vocab_size = kVocabSize) {
  const TemporaryDirectory folder;
  write_file(folder / "tokenizer.json", read_file(kDeclared + "tokenizer.json"));
  for (const auto& [name, text] : files) write_file(folder / name, text);
  return Tokenizer::load(folder.path(), vocab_size);
}

// Right values are those of transformers (tools/oracles/make_declared_token_cases.py).
TEST(DeclaredTokens, IdsAreThoseOfTransformers) {
  const std::string text = read_file(kDeclared + "declarations.jsonl");
  int cases = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++cases) {
    const Json one = Json::parse(std::string_view(text).substr(begin, end - begin), "declarations.jsonl");
    Files files;
    for (const auto& [name, content] : one.at("files").as_object()) files.emplace_back(name, content.dump());
    const Tokenizer tokenizer = load_with(files);
    for (size_t i = 0; i < one.at("texts").as_array().size(); ++i) {
      Json::Array ids;
      for (const int32_t id : tokenizer.encode(one.at("texts").as_array()[i].as_string()))
        ids.emplace_back(int64_t{id});
      EXPECT_EQ(Json(ids), one.at("ids").as_array()[i]) << one.at("files").dump();
    }
    Json::Array special;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.is_special(id)) special.emplace_back(int64_t{id});
    EXPECT_EQ(Json(special), one.at("special")) << one.at("files").dump();
  }
  EXPECT_EQ(cases, 16);
}

constexpr std::string_view kMarked = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n";

TEST(DeclaredTokens, AStatedIdIsKeptBehindAGap) {
  const Tokenizer tokenizer = load_with({{"added_tokens.json", R"({"<|im_start|>": 300})"}});
  EXPECT_EQ(tokenizer.encode("<|im_start|>a"), (std::vector<int32_t>{300, 97}));
  EXPECT_EQ(tokenizer.vocab_size(), 301);
}

// transformers reads added_tokens.json only where there is no added_tokens_decoder.
TEST(DeclaredTokens, AllFilesThatStateIdsCount) {
  const Tokenizer tokenizer =
      load_with({{"tokenizer_config.json",
                  R"({"added_tokens_decoder": {"281": {"content": "<|im_start|>", "special": true}}})"},
                 {"added_tokens.json", R"({"<|im_end|>": 282, "<|im_start|>": 281})"}});
  EXPECT_EQ(tokenizer.encode(kMarked).size(), 14u);
  EXPECT_TRUE(tokenizer.is_special(281));
  EXPECT_FALSE(tokenizer.is_special(282));
}

TEST(DeclaredTokens, OneWithoutAnIdNeedsRoomInTheModel) {
  const Files files = {{"tokenizer_config.json", R"({"pad_token": "[PAD]"})"}};
  EXPECT_EQ(load_with(files, 282).encode("[PAD]"), std::vector<int32_t>{281});
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_with(files, 281).encode("[PAD]").size(), 5u);
  const std::string warning = testing::internal::GetCapturedStderr();
  expect_has(warning, "tokenizer_config.json] pad_token is '[PAD]', to which no file gives an id");
  expect_has(warning, "the model's vocab_size, 281, has no room for it");
}

// transformers does not read added_tokens.json then.
TEST(DeclaredTokens, TheDecoderDecidesOverAddedTokens) {
  const std::string start =
      R"({"added_tokens_decoder": {"281": {"content": "<|im_start|>", "special": true}}})";
  const auto warning = [&](const std::string& added) {
    testing::internal::CaptureStderr();
    const Tokenizer tokenizer = load_with({{"tokenizer_config.json", start}, {"added_tokens.json", added}});
    EXPECT_EQ(tokenizer.encode("<|im_start|>user<|endoftext|>"), (std::vector<int32_t>{281, 270, 280}))
        << added;
    return testing::internal::GetCapturedStderr();
  };
  const std::string left_out =
      "added_tokens.json] is left out where added_tokens_decoder of tokenizer_config.json says otherwise: ";
  expect_has(
      warning(R"({"<|im_start|>": 282})"),
      left_out + "token '<|im_start|>' has id 281 in tokenizer_config.json and 282 in added_tokens.json\n");
  expect_has(warning(R"({"<|im_end|>": 281, "user": 300})"),
             left_out +
                 "id 281 is token '<|im_start|>' in tokenizer_config.json and '<|im_end|>' in "
                 "added_tokens.json (and 1 more)\n");
  expect_has(warning(R"({"<|endoftext|>": 282})"),
             left_out + "token '<|endoftext|>' has id 280 in tokenizer.json and 282 in added_tokens.json\n");
  EXPECT_EQ(warning(R"({"<|im_start|>": 281})"), "");
}

// A pad that was added and never embedded.
TEST(DeclaredTokens, AStatedIdNeedsRoomInTheModel) {
  for (const Files& files :
       {Files{{"added_tokens.json", R"({"<pad>": 320, "<|im_start|>": 319})"},
              {"special_tokens_map.json", R"({"pad_token": "<pad>"})"}},
        Files{{"tokenizer_config.json", R"({"added_tokens_decoder": {"320": {"content": "<pad>"},)"
                                        R"( "319": {"content": "<|im_start|>"}}, "pad_token": "<pad>"})"}}}) {
    testing::internal::CaptureStderr();
    const Tokenizer tokenizer = load_with(files);
    expect_has(testing::internal::GetCapturedStderr(),
               files[0].first +
                   "] the model's vocab_size, 320, has no room for the ids of tokens: '<pad>' (320); texts "
                   "with them are tokenized like others\n");
    EXPECT_EQ(tokenizer.vocab_size(), 320);
    EXPECT_EQ(tokenizer.encode("<|im_start|><pad>").size(), 6u);
  }
}

TEST(DeclaredTokens, ContradictionsNameBothFiles) {
  const auto refusal = [](const Files& files) { return error_of([&] { load_with(files); }); };
  expect_has(
      refusal({{"added_tokens.json", R"({"<|endoftext|>": 281})"}}),
      "token '<|endoftext|>' has id 280 in tokenizer.json and 281 in added_tokens.json; take both files "
      "from the same model");
  expect_has(refusal({{"tokenizer_config.json",
                       R"({"added_tokens_decoder": {"281": {"content": "<|endoftext|>"}}})"}}),
             "token '<|endoftext|>' has id 280 in tokenizer.json and 281 in tokenizer_config.json");
  expect_has(refusal({{"added_tokens.json", R"({"<|im_end|>": 270})"}}),
             "id 270 is token 'user' in tokenizer.json and '<|im_end|>' in added_tokens.json");
  expect_has(refusal({{"added_tokens.json", R"({"user": 281})"}}),
             "token 'user' has id 270 in tokenizer.json and 281 in added_tokens.json");
  expect_has(refusal({{"added_tokens.json", R"({"<|im_end|>": "x"})"}}), "added_tokens.json] '<|im_end|>'");
  expect_has(refusal({{"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})"}}),
             "tokenizer_config.json].added_tokens_decoder has the key 'x', expected token ids");
  expect_has(refusal({{"tokenizer_config.json", R"({"added_tokens_decoder": {"281": {}}})"}}),
             "added_tokens_decoder.281.content must be a text of at least one character");
  expect_has(refusal({{"special_tokens_map.json", "[]"}}),
             "special_tokens_map.json] must be an object, found an array");
}

}  // namespace
}  // namespace temper::tokenizers
