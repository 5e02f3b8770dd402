#include "templates/values/limits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"

namespace temper::templates {
namespace {

// As on a machine that is suspended in the middle of a rendering.
TEST(Limits, ATimeWithoutAProcessorDoesNotCount) {
  const Budget budget({.seconds = 0.02});
  spend();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_NO_THROW(spend(size_t{1} << 20));
}

TEST(Limits, ATimeOnAProcessorCounts) {
  const Budget budget({.steps = INT64_MAX, .seconds = 0.02});
  EXPECT_THROW(
      {
        for (;;) spend(size_t{1} << 10);
      },
      Error);
}

}  // namespace
}  // namespace temper::templates
