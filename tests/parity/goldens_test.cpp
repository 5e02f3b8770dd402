// What must be in the goldens folder: a case that is missing fails, it is not skipped.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "tests/parity/golden_case.h"

namespace temper::parity {
namespace {

// Random weights, of which adapters' goldens are made, and trained ones.
const std::vector<std::string> kCases{"deepseek_v3",
                                      "deepseek_v3_plain_trained",
                                      "deepseek_v3_trained",
                                      "gemma3_text_trained",
                                      "glm4_trained",
                                      "gpt_oss_trained",
                                      "granite_trained",
                                      "llama",
                                      "llama_trained",
                                      "mistral_trained",
                                      "mixtral_trained",
                                      "olmo2_trained",
                                      "phi3_trained",
                                      "qwen2",
                                      "qwen2_trained",
                                      "qwen3",
                                      "qwen3_5_moe_text_trained",
                                      "qwen3_5_text_trained",
                                      "qwen3_moe_trained",
                                      "qwen3_next_trained",
                                      "qwen3_trained",
                                      "smollm3_trained"};

TEST(Goldens, EveryCaseIsThere) {
  const std::vector<std::string> found = case_names();
  EXPECT_FALSE(found.empty()) << "no case in " << goldens_folder();
  if (!is_own_goldens()) GTEST_SKIP() << "TEMPER_GOLDENS names another folder, with cases of its own";
  EXPECT_EQ(found, kCases);
}

TEST(Goldens, EveryFamilyOfTheBuildHasATrainedCase) {
  if (!is_own_goldens()) GTEST_SKIP() << "TEMPER_GOLDENS names another folder, with cases of its own";
  EXPECT_FALSE(models::supported_model_types().empty());
  const std::vector<std::string> pictures = list_directory(join_path(goldens_folder(), "pictures"));
  for (const std::string& type : models::supported_model_types()) {
    const std::string name = type + "_trained";
    // Of families that also read pictures, and of those of text that only they have (text_of_pictures_test).
    const std::string with_pictures = type.ends_with("_text") ? type.substr(0, type.size() - 5) : type;
    if (std::count(pictures.begin(), pictures.end(), with_pictures) > 0 &&
        !exists(join_path(goldens_folder(), name)))
      continue;
    ASSERT_TRUE(std::find(kCases.begin(), kCases.end(), name) != kCases.end())
        << "add " << name << " by tools/oracles/make_model_goldens.py";
    EXPECT_EQ(model_type_of(name), type);
  }
}

TEST(Goldens, EveryCaseIsOfAFamilyOfTheBuild) {
  for (const std::string& name : case_names()) {
    if (is_built(model_type_of(name))) continue;
    EXPECT_FALSE(is_own_goldens()) << name << ": model_type '" << model_type_of(name) << "' is not built";
  }
}

}  // namespace
}  // namespace temper::parity
