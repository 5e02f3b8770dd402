#include "tokenizers/tokens/settings.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "tests/support/errors.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

// tokenizer_llama2 with these settings in its folder; its own post-processor adds both tokens.
std::vector<int32_t> encoded(std::string_view settings) {
  const TemporaryDirectory folder;
  const std::string golden = TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_llama2/tokenizer.json";
  write_file(folder / "tokenizer.json", read_file(golden));
  if (!settings.empty()) write_file(folder / "tokenizer_config.json", settings);
  return Tokenizer::load(folder.path()).encode("", true);
}

using Ids = std::vector<int32_t>;
constexpr int32_t kBos = 1, kEos = 2;

TEST(Settings, ReplaceThePostProcessorOfLlamaLikeClasses) {
  EXPECT_EQ(encoded(""), (Ids{kBos, kEos}));
  EXPECT_EQ(encoded(R"({"tokenizer_class":"LlamaTokenizer"})"), (Ids{kBos, kEos}));
  EXPECT_EQ(encoded(R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":false,"eos_token":"</s>"})"),
            Ids{});
  EXPECT_EQ(encoded(R"({"tokenizer_class":"LlamaTokenizerFast","add_bos_token":true,"bos_token":"<s>"})"),
            Ids{kBos});
  EXPECT_EQ(encoded(R"({"tokenizer_class":"GemmaTokenizer","add_eos_token":true,"bos_token":{"content":"<s>"},
                        "eos_token":{"content":"</s>","lstrip":false}})"),
            (Ids{kBos, kEos}));
  EXPECT_EQ(encoded(R"({"tokenizer_class":"GPTNeoXTokenizerFast","add_eos_token":true,"eos_token":"</s>"})"),
            Ids{kEos});
}

TEST(Settings, AreNothingToOtherClasses) {
  for (const char* name : {"PreTrainedTokenizerFast", "GPT2Tokenizer", "Qwen2TokenizerFast", ""})
    EXPECT_EQ(encoded(fmt::format(R"({{"tokenizer_class":"{}","add_bos_token":false}})", name)),
              (Ids{kBos, kEos}));
}

TEST(Settings, ErrorsNameTheKey) {
  const auto message = [](std::string_view settings) { return error_of([&] { encoded(settings); }); };
  expect_has(message(R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":true})"),
             "tokenizer_config.json] has no bos_token, which add_bos_token needs");
  expect_has(message(R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":true,"bos_token":"<q>"})"),
             "tokenizer_config.json].bos_token is '<q>', which the tokenizer does not have");
  expect_has(message(R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":1})"),
             "tokenizer_config.json].add_bos_token must be true or false, found an integer");
  expect_has(message("[]"), "tokenizer_config.json] must be an object, found an array");
}

}  // namespace
}  // namespace temper::tokenizers
