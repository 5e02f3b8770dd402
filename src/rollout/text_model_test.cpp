#include "rollout/text_model.h"

#include <gtest/gtest.h>

namespace temper::rollout {
namespace {

TEST(TextFiles, TellWhatOfAPromptIsLeftOut) {
  const TextFiles files{tokenizers::Tokenizer::from_json(
                            R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
                                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
                                "decoder": {"type": "ByteLevel"}})",
                            "few.json"),
                        nullptr,
                        {}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(files.encode_prompt("ab", false), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  EXPECT_EQ(files.encode_prompt("a\u20acb", false), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: 3 of the prompt's 5 bytes are left out: the tokenizer has no token for them\n");
}

}  // namespace
}  // namespace temper::rollout
