#include "backends/peak.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

// A processor that speeds up: what comes later counts as long as it is more.
TEST(Peak, IsTheBestOfRunsUntilNoneIsBetter) {
  const std::vector<double> speeds{5, 3, 4, 6, 6.01, 2, 6.02, 9};
  size_t runs = 0;
  EXPECT_EQ(best_of_runs(3, [&] { return speeds[runs++]; }), 6.02);
  EXPECT_EQ(runs, 7u);
}

TEST(Peak, IsMeasuredForAQuarterOfASecondAtMost) {
  double speed = 1;
  const double begin = seconds_now();
  best_of_runs(2, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return speed *= 1.1;
  });
  EXPECT_GE(seconds_now() - begin, 0.25);
}

TEST(Peak, IsMeasuredOnceAndLeavesThreadsAlone) {
  const int threads = num_threads();
  const double peak = measured_matmul_peak(DType::kF32, 1);
  EXPECT_GT(peak, 1e8);
  EXPECT_EQ(measured_matmul_peak(DType::kF32, 1), peak);
  EXPECT_GT(measured_matmul_peak(DType::kBF16, 1), 1e8);
  EXPECT_EQ(num_threads(), threads);
  EXPECT_THROW(measured_matmul_peak(DType::kI32, 1), Error);
}

}  // namespace
}  // namespace temper::backends
