#include "collectives/nccl/narrow_sums.h"

#include <gtest/gtest.h>

namespace temper::collectives {
namespace {

// Each rank's part begins at a multiple of 16 bytes.
TEST(NarrowSums, WhatRanksSendOfSmallTensorsHasRoom) {
  EXPECT_TRUE(NarrowSums::is_small(65'536, DType::kBF16, 512));
  EXPECT_FALSE(NarrowSums::is_small(65'536, DType::kBF16, 513));
  EXPECT_FALSE(NarrowSums::is_small(65'537, DType::kBF16, 2));
  EXPECT_TRUE(NarrowSums::is_small(33'544, DType::kF16, 1000));
  EXPECT_FALSE(NarrowSums::is_small(33'554, DType::kBF16, 1000));
}

}  // namespace
}  // namespace temper::collectives
