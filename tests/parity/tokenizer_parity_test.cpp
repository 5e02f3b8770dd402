// Every folder of the goldens with tokenizer.json and cases.jsonl: the same ids and texts as recorded.
// Each line of cases.jsonl is {"text", "ids", "decoded"}, without special tokens.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "base/json.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

std::string goldens_folder() {
  const char* folder = std::getenv("TEMPER_GOLDENS");
  return folder && *folder ? folder : TEMPER_SOURCE_DIR "/tests/goldens";
}

std::vector<std::string> golden_tokenizers() {
  std::vector<std::string> found;
  if (!is_directory(goldens_folder())) return found;
  for (const std::string& name : list_directory(goldens_folder())) {
    const std::string folder = join_path(goldens_folder(), name);
    if (exists(join_path(folder, "tokenizer.json")) && exists(join_path(folder, "cases.jsonl")))
      found.push_back(name);
  }
  return found;
}

class TokenizerParity : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TokenizerParity);

TEST_P(TokenizerParity, EncodesAndDecodesAsRecorded) {
  const std::string folder = join_path(goldens_folder(), GetParam());
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::string cases = read_file(join_path(folder, "cases.jsonl"));
  size_t number = 0;
  for (size_t begin = 0; begin < cases.size();) {
    const size_t end = std::min(cases.find('\n', begin), cases.size());
    const Json row = Json::parse(std::string_view(cases).substr(begin, end - begin), "cases.jsonl");
    begin = end + 1;
    ++number;
    std::vector<int32_t> ids;
    for (const Json& id : row.at("ids").as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
    EXPECT_EQ(tokenizer.encode(row.at("text").as_string()), ids)
        << "line " << number << ": " << row.at("text").dump();
    EXPECT_EQ(tokenizer.decode(ids), row.at("decoded").as_string()) << "line " << number;
  }
  EXPECT_GT(number, 0u);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TokenizerParity, testing::ValuesIn(golden_tokenizers()),
                         [](const auto& info) { return info.param; });

TEST(TokenizerParityGoldens, SaysWhatWasFound) {
  const size_t count = golden_tokenizers().size();
  RecordProperty("tokenizers", static_cast<int>(count));
  if (count == 0) GTEST_SKIP() << "no folder with tokenizer.json and cases.jsonl in " << goldens_folder();
}

}  // namespace
}  // namespace temper::tokenizers
