#include "rollout/scheduling/sequence_cache.h"

#include <gtest/gtest.h>

#include "rollout/requests_test_support.h"

namespace temper::rollout {
namespace {

// Instead of a mixer's states: what the cache asks for, in order.
class RecordedStates : public layers::MixerPages {
 public:
  explicit RecordedStates(std::vector<std::string>& calls) : calls_(calls) {}
  bool has_slots() const override { return true; }
  void clear_slot(int64_t slot) const override { calls_.push_back(fmt::format("clear {}", slot)); }
  void copy_slot(int64_t from, int64_t to) const override {
    calls_.push_back(fmt::format("copy {} to {}", from, to));
  }

 private:
  std::vector<std::string>& calls_;
};

layers::PagedStates recorded_states(std::vector<std::string>& calls) {
  std::vector<std::unique_ptr<layers::MixerPages>> layers;
  layers.push_back(std::make_unique<RecordedStates>(calls));
  return {std::move(layers), {}};
}

SequenceCache cache_of_pages(int64_t pages) { return {{{}, {}}, {.page_tokens = 4}, pages, 2}; }

// A sequence with this prompt, all of it computed.
std::unique_ptr<Sequence> computed_in(SequenceCache& cache, const Ids& prompt,
                                      const WeightVersions& versions) {
  auto sequence = sequence_of(request_of(prompt), 0, 1 << 12);
  EXPECT_TRUE(cache.begin(*sequence, versions));
  while (std::ssize(sequence->pages) < cache.pages_for(sequence->length()))
    EXPECT_TRUE(cache.add_page(*sequence));
  sequence->computed = sequence->length();
  cache.publish(*sequence);
  return sequence;
}

TEST(SequenceCache, FindsBeginningsByTheSameWeights) {
  SequenceCache cache = cache_of_pages(16);
  const Ids prompt = prompt_of(12, 1);
  const auto first = computed_in(cache, prompt, {1, 2});
  const auto found = [&](const Ids& text, const WeightVersions& versions) {
    const auto other = sequence_of(request_of(text));
    const int64_t tokens = cache.begin(*other, versions).value();
    EXPECT_TRUE(std::equal(other->pages.begin(), other->pages.end(), first->pages.begin()));
    EXPECT_EQ(tokens, other->computed);
    cache.end(*other);
    return tokens;
  };
  EXPECT_EQ(found(prompt_of(13, 1), {1, 2}), 12);
  EXPECT_EQ(found(prompt, {1, 2}), 8);  // all but its last token
  EXPECT_EQ(found(prompt_of(7, 1), {1, 2}), 4);
  EXPECT_EQ(found(prompt_of(12, 2), {1, 2}), 0);
  EXPECT_EQ(found(prompt, {2, 2}), 0);
  EXPECT_EQ(found(prompt, {1, 3}), 0);
  cache.end(*first);
  EXPECT_EQ(found(prompt, {1, 2}), 8);
  cache.forget();
  EXPECT_EQ(found(prompt, {1, 2}), 0);
}

TEST(SequenceCache, BeginsOnlyWithPagesForOneTokenMore) {
  SequenceCache cache = cache_of_pages(4);
  const auto first = computed_in(cache, prompt_of(7, 1), {1});  // two pages
  const auto fits = sequence_of(request_of(prompt_of(7, 2))),
             shares = sequence_of(request_of(prompt_of(11, 1))),
             large = sequence_of(request_of(prompt_of(8, 2)));
  EXPECT_FALSE(cache.begin(*large, {1}));
  EXPECT_EQ(large->slot, PagePool::kNone);
  EXPECT_EQ(cache.begin(*shares, {1}), 4);
  cache.end(*shares);
  EXPECT_EQ(cache.begin(*fits, {1}), 0);
  EXPECT_EQ(fits->slot, 1);
  EXPECT_TRUE(cache.add_page(*fits));
  EXPECT_TRUE(cache.add_page(*fits));
  EXPECT_FALSE(cache.add_page(*fits));
  EXPECT_EQ(cache.available_pages(), 0);
  cache.end(*fits);
  EXPECT_EQ(cache.available_pages(), 2);
}

// Pages without a state at their end are of no use to mixers with slots.
TEST(SequenceCache, CopiesStatesAtTheEndsOfPages) {
  std::vector<std::string> calls;
  SequenceCache cache(recorded_states(calls),
                      {.page_tokens = 32, .has_slots = true, .decodes_as_prompts = false}, 16, 2);
  const Ids prompt = prompt_of(100, 1);
  const auto first = sequence_of(request_of(prompt), 0, 1 << 12);
  EXPECT_EQ(cache.begin(*first, {1}), 0);
  while (cache.add_page(*first) && std::ssize(first->pages) < 4) {
  }
  for (const int64_t computed : {64, 100}) {
    first->computed = computed;
    cache.publish(*first);
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"clear 0", "copy 0 to 2"}));
  const auto second = sequence_of(request_of(prompt), 0, 1 << 12);
  EXPECT_EQ(cache.begin(*second, {1}), 64);  // not 96
  EXPECT_EQ(std::ssize(second->pages), 2);
  EXPECT_EQ(calls.back(), "copy 2 to 1");
  EXPECT_EQ(calls[2], "clear 1");
}

}  // namespace
}  // namespace temper::rollout
