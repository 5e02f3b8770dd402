// Prompts that are computed in parts.
#include <gtest/gtest.h>

#include "rollout/engine_test_support.h"

namespace temper::rollout {
namespace {

// Of hybrids that compute prompts in chunks, not token by token as they decode.
ops::OpsConfig kernels_of_chunks() {
  ops::OpsConfig config = invariant_kernels();
  config.written.emplace("recurrent_gated_delta_rule", ops::kEager);
  return config;
}

// A hybrid's kernels begin new sums every 64 tokens of a part: parts that began elsewhere would have
// other bits than the whole prompt.
TEST(EngineParts, OfAHybridsPromptHaveTheBitsOfTheWhole) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  for (const char* type : {"qwen3_next", "qwen3_5_text"}) {
    const auto model = tiny_model(
        {.type = type, .ops = kernels_of_chunks(), .sizes = {{"max_position_embeddings", Json(512)}}});
    ASSERT_FALSE(model->decoder.decodes_as_prompts());
    std::vector<Request> requests;
    for (const int32_t length : {300, 65, 130, 251})
      requests.push_back(request_of(prompt_of(length, length % 9), static_cast<uint64_t>(length), 1.5, 4));
    std::vector<Completion> whole;
    for (const Request& request : requests)
      whole.push_back(answers_of(model->decoder, {request}, {.prefix_cache = false})[0]);
    for (const int64_t chunk_tokens : {64, 100, 200})
      for (const bool prefix_cache : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, parts of {}, {}", type, chunk_tokens, prefix_cache));
        const std::vector<Completion> found =
            answers_of(model->decoder, requests,
                       {.max_running = 4, .chunk_tokens = chunk_tokens, .prefix_cache = prefix_cache});
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_EQ(found[i].ids, whole[i].ids) << i;
          EXPECT_EQ(found[i].columns.rollout_log_probs, whole[i].columns.rollout_log_probs) << i;
        }
      }
  }
}

}  // namespace
}  // namespace temper::rollout
