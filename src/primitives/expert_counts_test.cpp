#include "primitives/expert_counts.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/gpu.h"

namespace temper::primitives {
namespace {

// Of 5 experts and what is not read.
void expect_counts_and_biases(Device device) {
  const auto there = [&](auto values) { return Tensor::from(values).on(device).clone(); };
  const Tensor counts = there(std::vector<int32_t>{7, 0, 16'777'217, 3, 1, 9});
  add_counts(counts, there(std::vector<int32_t>{1, 0, 2'000'000'000, 5, 2, 4}));
  const Tensor summed = counts.on({});
  EXPECT_EQ(std::vector<int32_t>(summed.values<int32_t>().begin(), summed.values<int32_t>().end()),
            (std::vector<int32_t>{8, 0, 2'016'777'217, 8, 3, 13}));
  const auto moved = [&](const std::vector<int32_t>& chosen, float norm) {
    const Tensor biases = there(std::vector<float>{0, 1, -1, 0.5f, 2});
    move_biases(biases, there(chosen), 0.25f, there(std::vector<float>{norm}));
    const Tensor found = biases.on({});
    return std::vector<float>(found.values<float>().begin(), found.values<float>().end());
  };
  // The mean is 4; sums and products of counts are beyond 32 bits.
  EXPECT_EQ(moved({4, 3, 5, 0, 8, 1000}, 1), (std::vector<float>{0, 1.25f, -1.25f, 0.75f, 1.75f}));
  EXPECT_EQ(moved({2'000'000'000, 2'000'000'000, 2'000'000'001, 1'999'999'999, 2'000'000'000, 0}, 1),
            (std::vector<float>{0, 1, -1.25f, 0.75f, 2}));
  for (const float norm : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_EQ(moved({4, 3, 5, 0, 8, 0}, norm), (std::vector<float>{0, 1, -1, 0.5f, 2}));
}

TEST(ExpertCounts, AreIntegersAndBiasesFollowThem) { expect_counts_and_biases({}); }

TEST(ExpertCounts, AreIntegersAndBiasesFollowThemOnAGpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  expect_counts_and_biases({DeviceType::kCuda, 0});
}

}  // namespace
}  // namespace temper::primitives
