#include "rollout/passes/batch_input.h"

#include <gtest/gtest.h>

#include "models/adapter.h"
#include "rollout/requests_test_support.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

Ids numbers_of(const Tensor& tensor) {
  const auto values = tensor.values<int32_t>();
  return {values.begin(), values.end()};
}

TEST(BatchInput, HasTheTokensPagesAndSlotsOfItsParts) {
  const auto model = tiny_model();
  const auto adapter = models::new_adapter(*model, {.rank = 2, .alpha = 4}, 1, "");
  Request adapted = request_of({7, 8, 9});
  adapted.adapter = adapter.get();
  const auto decoding = sequence_of(request_of({1, 2})), prompt = sequence_of(request_of({4, 5, 6})),
             other = sequence_of(adapted);
  decoding->take({3});
  decoding->computed = 2;
  decoding->pages = {11, 12};
  decoding->slot = 1;
  prompt->pages = {13};
  prompt->slot = 0;
  other->computed = 1;
  other->pages = {14};
  other->slot = 2;
  const layers::BatchInput input =
      batch_input_of({{decoding.get(), 1, true}, {prompt.get(), 2, false}, {other.get(), 2, false}});
  EXPECT_EQ(numbers_of(input.ids), (Ids{3, 4, 5, 8, 9}));
  EXPECT_EQ(numbers_of(input.batch.sequences.starts), (Ids{0, 1, 3, 5}));
  EXPECT_EQ(numbers_of(input.batch.sequences.held), (Ids{2, 0, 1}));
  EXPECT_EQ(numbers_of(input.batch.sequences.pages), (Ids{11, 12, 13, -1, 14, -1}));
  EXPECT_EQ(numbers_of(input.batch.slots), (Ids{1, 0, 2}));
  EXPECT_EQ(input.batch.decoding, 1);
  ASSERT_EQ(input.adapters.size(), 2u);
  EXPECT_EQ(input.adapters[0].rows, 3);  // of the model alone
  EXPECT_EQ(input.adapters[1].adapter, adapter.get());
  EXPECT_EQ(input.adapters[1].rows, 2);
  EXPECT_EQ(input.routers, nullptr);
}

TEST(BatchInput, RecordsExpertsOfRequestsThatAsk) {
  Request asks = request_of({4, 5});
  asks.record_experts = true;
  const auto recorded = sequence_of(asks), plain = sequence_of(request_of({1}));
  const std::vector<ScheduledPart> parts{{plain.get(), 1, false}, {recorded.get(), 2, false}};
  layers::BatchInput input = batch_input_of(parts);
  ASSERT_NE(input.routers, nullptr);
  EXPECT_TRUE(input.adapters.empty());  // the model alone
  for (const int32_t first : {0, 10})
    input.routers->routers.emplace_back().ids =
        Tensor::from(Ids{first, first + 1, first + 2, first + 3, first + 4, first + 5}).reshape({3, 2});
  record_experts(parts, *input.routers);
  EXPECT_TRUE(plain->result().experts.empty());
  EXPECT_EQ(recorded->result().experts, (Ids{2, 3, 12, 13, 4, 5, 14, 15}));
  record_experts(parts, *input.routers);  // nothing counts as computed: in place of the first
  EXPECT_EQ(recorded->result().experts.size(), 8u);
}

}  // namespace
}  // namespace temper::rollout
