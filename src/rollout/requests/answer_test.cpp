#include "rollout/requests/answer.h"

#include <gtest/gtest.h>

#include "rollout/requests_test_support.h"

namespace temper::rollout {
namespace {

TEST(Answer, EndsAtAStopTokenItsLengthOrTheContext) {
  Request request = request_of({1, 2, 3}, 0, 0, 4);
  request.stop_ids = {9};
  Answer stopped(request, 0, 64, nullptr);
  EXPECT_TRUE(stopped.take({5, -1, 0}, {}));
  EXPECT_FALSE(stopped.take({9, -2, -0.5f}, {}));
  EXPECT_EQ(stopped.result().finish, Finish::kStopToken);
  EXPECT_EQ(stopped.result().ids, (Ids{5, 9}));
  EXPECT_EQ(stopped.result().columns.rollout_log_probs, (std::vector<float>{-1, -2}));
  EXPECT_EQ(stopped.result().columns.kept, (std::vector<float>{0, -0.5f}));
  for (const auto& [context, most, end] :
       {std::tuple{64, 4, Finish::kLength}, {6, 3, Finish::kContext}, {7, 4, Finish::kContext}}) {
    Answer answer(request, 0, context, nullptr);
    for (int i = 1; i < most; ++i) EXPECT_TRUE(answer.take({5}, {}));
    EXPECT_FALSE(answer.take({5}, {}));
    EXPECT_EQ(answer.result().finish, end);
    EXPECT_EQ(std::ssize(answer.result().ids), most);
  }
}

TEST(Answer, RecordsWhichWeightsChoseEachToken) {
  Answer answer(request_of({1}), 7, 64, nullptr);
  answer.take({5}, {.model = 3});
  answer.take({6}, {.model = 4});
  EXPECT_EQ(answer.result().id, 7);
  EXPECT_EQ(answer.result().versions, (std::vector<uint64_t>{3, 4}));
  EXPECT_TRUE(answer.result().adapter_versions.empty());  // it has no adapter
}

TEST(Answer, FailsWhereThereIsNoToken) {
  Answer answer(request_of({1, 2}), 0, 64, nullptr);
  answer.take({5}, {});
  EXPECT_FALSE(answer.take({}, {}));
  EXPECT_EQ(answer.result().finish, Finish::kFailed);
  EXPECT_EQ(answer.result().ids, Ids{5});
  EXPECT_NE(answer.result().error.find("new token 2 (position 3 of the text)"), std::string::npos)
      << answer.result().error;
}

}  // namespace
}  // namespace temper::rollout
