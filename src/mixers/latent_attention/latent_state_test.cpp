#include "mixers/latent_attention/latent_state.h"

#include <gtest/gtest.h>

#include "device/memory.h"
#include "tests/support/errors.h"

namespace temper::mixers {
namespace {

Tensor filled(int64_t tokens, int64_t width, float value) {
  Tensor tensor = Tensor::empty({tokens, width}, DType::kF32, MemoryTag::kActivations);
  for (float& element : tensor.values<float>()) element = value;
  return tensor;
}

TEST(LatentState, GrowsAndForgetsTheEnd) {
  LatentState state(4, 3, 2, DType::kF32);
  const Tensor seen = state.append(0, filled(2, 3, 1), filled(2, 2, 2));
  ASSERT_EQ(seen.shape(), (Shape{2, 5}));
  EXPECT_EQ(std::vector<float>(seen.values<float>().begin(), seen.values<float>().end()),
            (std::vector<float>{1, 1, 1, 2, 2, 1, 1, 1, 2, 2}));
  EXPECT_EQ(state.truncate(1, 2), 1);
  const Tensor again = state.append(1, filled(3, 3, 7), filled(3, 2, 8));
  EXPECT_EQ(again.values<float>()[4], 2);
  EXPECT_EQ(again.values<float>()[5], 7);
  EXPECT_NE(error_of([&] {
              state.append(4, filled(1, 3, 0), filled(1, 2, 0));
            }).find("the latent cache holds 4 tokens, 4 + 1 do not fit"),
            std::string::npos);
  state.reserve(6, 4);
  EXPECT_EQ(state.all().shape(), (Shape{1, 6, 5}));
  EXPECT_EQ(state.append(4, filled(2, 3, 0), filled(2, 2, 0)).values<float>()[19], 8);
}

// As the memory plan counts it.
TEST(LatentState, ItsMemoryIsTheCaches) {
  const auto used = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kKvCache)].live; };
  const int64_t before = used();
  const LatentState state(100, 512, 64, DType::kBF16);
  EXPECT_EQ(used() - before, 100 * 576 * 2);
}

}  // namespace
}  // namespace temper::mixers
