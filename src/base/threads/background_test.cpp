#include "base/threads/background.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"

namespace temper {
namespace {

TEST(Background, RunsOneTaskBesideItsCaller) {
  Background background;
  EXPECT_TRUE(background.wait_for(0)) << "there is none";
  background.wait();
  std::promise<void> go;
  std::atomic<int> done = 0;
  background.start([&] {
    go.get_future().wait();
    ++done;
  });
  EXPECT_FALSE(background.wait_for(0.01));
  EXPECT_EQ(done, 0);
  go.set_value();
  background.start([&] { done = done == 1 ? 2 : -1; });  // after the first
  background.wait();
  EXPECT_EQ(done, 2);
  EXPECT_TRUE(background.wait_for(0));
}

TEST(Background, ThrowsWhatItsTaskThrew) {
  Background background;
  background.start([] { fail_resources("no space"); });
  EXPECT_THROW(background.wait(), Error);
  background.wait();  // once
  background.start([] { fail("again"); });
  EXPECT_THROW(background.start([] {}), Error);
  {
    Background left;
    left.start([] { fail("not waited for"); });
  }
}

}  // namespace
}  // namespace temper
