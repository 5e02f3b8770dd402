#include "rollout/requests/request_limits.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "rollout/requests_test_support.h"

namespace temper::rollout {
namespace {

TEST(RequestLimits, RefuseWhatCannotBeAnswered) {
  const RequestLimits limits{.vocab_size = 48, .context = 64, .cache_tokens = 40};
  limits.check(request_of(prompt_of(28, 1)));                       // 40 tokens
  EXPECT_THROW(limits.check(request_of(prompt_of(29, 1))), Error);  // 41
  limits.check(request_of(prompt_of(39, 1), 0, 0, 1));
  EXPECT_THROW(limits.check(request_of({})), Error);
  EXPECT_THROW(limits.check(request_of({3, 48})), Error);
  EXPECT_THROW(limits.check(request_of({-1})), Error);
  EXPECT_THROW(limits.check(request_of({3}, 0, 0, 0)), Error);
  Request request = request_of({3});
  request.forced = {48};
  EXPECT_THROW(limits.check(request), Error);
  request = request_of({3});
  request.log_prob_temperature = -1;
  EXPECT_THROW(limits.check(request), Error);
  request = request_of({3});
  request.stop_strings = {"end"};
  EXPECT_THROW(limits.check(request), Error);
  RequestLimits({.vocab_size = 48, .context = 64, .cache_tokens = 40, .has_tokenizer = true}).check(request);
}

TEST(RequestLimits, LeaveRoomForOneTokenInTheContext) {
  const RequestLimits limits{.vocab_size = 48, .context = 64, .cache_tokens = 64};
  limits.check(request_of(prompt_of(63, 1)));
  EXPECT_THROW(limits.check(request_of(prompt_of(64, 1))), Error);
}

}  // namespace
}  // namespace temper::rollout
