#include "rollout/generation_config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"

namespace temper::rollout {
namespace {

class GenerationConfig : public testing::Test {
 protected:
  Request read(const std::string& generation, const std::string& model = "{}") const {
    write_file(folder_ / "config.json", model);
    write_file(folder_ / "generation_config.json", generation);
    return read_generation_config(folder_.path(), 48);
  }
  TemporaryDirectory folder_;
};

TEST_F(GenerationConfig, StopTokensComeFromBothFiles) {
  EXPECT_EQ(read(R"({"eos_token_id": [7, 9]})", R"({"eos_token_id": 9})").stop_ids,
            (std::vector<int32_t>{9, 7}));
  EXPECT_TRUE(read(R"({"eos_token_id": null})").stop_ids.empty());
}

TEST_F(GenerationConfig, StopTokensThatCannotOccurAreLeftOut) {
  testing::internal::CaptureStderr();
  // 2^32 + 5 is not token 5.
  EXPECT_EQ(
      read(R"({"eos_token_id": [-1, 60, 47]})", R"({"eos_token_id": [48, 4294967301, -1, 3]})").stop_ids,
      (std::vector<int32_t>{3, 47}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: [" + folder_ / "generation_config.json" +
                "] eos_token_id has 60, but the tokens are 0 to vocab_size - 1 = 47; it has no effect\n");
}

TEST_F(GenerationConfig, SamplesOnlyWhenConfigured) {
  EXPECT_EQ(read(R"({"temperature": 0.7, "top_p": 0.8})").sampling.temperature, 0);
  const Request options = read(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05,
          "repetition_penalty": 1.1, "max_new_tokens": 33, "num_beams": 1, "transformers_version": "4.51.0"})");
  EXPECT_EQ(options.sampling.temperature, 0.6);
  EXPECT_EQ(options.sampling.top_k, 20);
  EXPECT_EQ(options.sampling.top_p, 0.95);
  EXPECT_EQ(options.sampling.min_p, 0.05);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(options.max_new_tokens, 33);
  EXPECT_EQ(read(R"({"do_sample": true})").sampling.temperature, 1);
}

TEST_F(GenerationConfig, BadValuesNameFileAndKey) {
  for (const char* text : {R"({"temperature": "hot"})", R"({"top_p": -1})", R"({"eos_token_id": "</s>"})",
                           R"({"repetition_penalty": 0})", R"({"do_sample": 3})", "[]"}) {
    try {
      read(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("generation_config.json"), std::string::npos) << error.what();
    }
  }
}

TEST_F(GenerationConfig, SettingsThatAreNotSupportedAreNamed) {
  testing::internal::CaptureStderr();
  read(R"({"num_beams": 4, "min_new_tokens": 0, "penalty_alpha": 0.6})");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("num_beams = 4"), std::string::npos) << said;
  EXPECT_NE(said.find("penalty_alpha"), std::string::npos) << said;
  EXPECT_EQ(said.find("min_new_tokens"), std::string::npos) << said;
}

}  // namespace
}  // namespace temper::rollout
