#include "backends/onednn/peak.h"

#include <gtest/gtest.h>

#include "base/threads.h"

namespace temper::backends {
namespace {

TEST(Peak, IsMeasuredOnceAndLeavesThreadsAlone) {
  const int threads = num_threads();
  const double peak = measured_matmul_peak(DType::kF32, 1);
  EXPECT_GT(peak, 1e8);
  EXPECT_EQ(measured_matmul_peak(DType::kF32, 1), peak);
  EXPECT_EQ(num_threads(), threads);
  EXPECT_THROW(measured_matmul_peak(DType::kI32, 1), Error);
}

}  // namespace
}  // namespace temper::backends
