#include "rewards/exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <new>

namespace temper::rewards {
namespace {

// Runs a thread that ends so, and waits for a verdict.
template <class F>
void take_after(Exchange& exchange, const F& ends) {
  exchange.start(
      "grpo.rewards[0].command",
      [&] {
        std::deque<Task> tasks;
        while (tasks.empty())
          if (!exchange.take_submitted(tasks)) return;
        ends();
      },
      [] {});
  exchange.submit({});
  exchange.take(INFINITY);
}

TEST(RewardExchange, ErrorsOfTheThreadNameTheKey) {
  Exchange exchange;
  try {
    take_after(exchange, [] { fail_resources("no space"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[grpo.rewards[0].command] no space");
    EXPECT_EQ(error.kind(), ErrorKind::kResources);
  }
  EXPECT_THROW(exchange.submit({}), Error);
  exchange.stop();
}

// It is no defect, and the thread does not end the process.
TEST(RewardExchange, OutOfMemoryIsWhatItIs) {
  Exchange exchange;
  EXPECT_THROW(take_after(exchange, [] { throw std::bad_alloc(); }), std::bad_alloc);
  exchange.stop();
}

}  // namespace
}  // namespace temper::rewards
