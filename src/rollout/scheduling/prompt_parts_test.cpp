#include "rollout/scheduling/prompt_parts.h"

#include <gtest/gtest.h>

#include "rollout/requests_test_support.h"

namespace temper::rollout {
namespace {

// A prompt of this length with two sampled tokens behind it, of which `computed` tokens are computed.
std::unique_ptr<Sequence> partly_computed(int64_t prompt, int64_t computed) {
  auto sequence = sequence_of(request_of(prompt_of(prompt, 1)), 0, 1 << 12);
  sequence->take({3});
  sequence->take({4});
  sequence->computed = computed;
  return sequence;
}

TEST(PromptParts, WithoutSlotsEndAnywhere) {
  const PromptParts parts{.page_tokens = 16};
  EXPECT_EQ(parts.next_part(*partly_computed(100, 10), 64), 64);
  EXPECT_EQ(parts.next_part(*partly_computed(100, 50), 64), 52);  // sampled tokens, too
  EXPECT_FALSE(parts.decodes(*partly_computed(100, 100)));
  EXPECT_TRUE(parts.decodes(*partly_computed(100, 101)));
  EXPECT_EQ(parts.shareable(*partly_computed(100, 102)), 102);
  EXPECT_EQ(parts.shareable(*partly_computed(100, 103)), 102);  // one token is not known yet
}

TEST(PromptParts, EndWithThePromptWhereSampledTokensLeaveOtherBits) {
  const PromptParts parts{.page_tokens = 16, .decodes_as_prompts = false};
  EXPECT_EQ(parts.next_part(*partly_computed(100, 50), 64), 50);
  EXPECT_TRUE(parts.decodes(*partly_computed(100, 100)));
  EXPECT_EQ(parts.shareable(*partly_computed(100, 102)), 100);
}

// Every part begins at a multiple of 64 tokens, and one ends where a state may be kept.
TEST(PromptParts, WithSlotsBeginAtMultiplesOf64) {
  PromptParts parts{.page_tokens = 24, .has_slots = true, .decodes_as_prompts = false};
  EXPECT_EQ(parts.next_part(*partly_computed(300, 0), 100), 64);
  EXPECT_EQ(parts.next_part(*partly_computed(300, 64), 63), 0);
  EXPECT_EQ(parts.last_boundary(*partly_computed(300, 0)), 192);  // whole pages of 24
  EXPECT_EQ(parts.last_boundary(*partly_computed(192, 0)), 0);    // its last token is computed
  EXPECT_EQ(parts.next_part(*partly_computed(300, 0), 512), 192);
  EXPECT_EQ(parts.next_part(*partly_computed(300, 192), 512), 108);
  parts.prefix_cache = false;
  EXPECT_EQ(parts.next_part(*partly_computed(300, 0), 512), 300);
}

}  // namespace
}  // namespace temper::rollout
