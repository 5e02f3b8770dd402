#include "layers/parameters/layer_gradients.h"

#include <gtest/gtest.h>

namespace temper::layers {
namespace {

TEST(LayerGradients, AreZeroUntilTheyAreSetAndAfterAReset) {
  LayerGradients gradients({0, 4}, {});
  EXPECT_FALSE(gradients.has(1));
  const Tensor memory = gradients.memory(1);
  for (float& value : memory.values<float>()) value = 3;
  gradients.set(1);
  EXPECT_TRUE(gradients.has(1));
  EXPECT_EQ(gradients.sum(1).raw(), memory.raw());
  EXPECT_EQ(gradients.sum(1).values<float>()[2], 3);
  gradients.reset();
  EXPECT_FALSE(gradients.has(1));
  EXPECT_EQ(gradients.sum(1).raw(), memory.raw());  // its memory stays
  EXPECT_EQ(memory.values<float>()[2], 0);
  EXPECT_TRUE(gradients.has(1));
}

TEST(LayerGradients, HaveMemoryOfTheirDtypeUntilItIsReleased) {
  LayerGradients gradients({8}, {});
  gradients.keep_in(DType::kBF16);
  gradients.sum(0);
  gradients.release();
  EXPECT_FALSE(gradients.has(0));
  gradients.keep_in(DType::kF32);
  EXPECT_EQ(gradients.memory(0).dtype(), DType::kF32);
  EXPECT_EQ(gradients.memory(0).shape(), Shape({8}));
}

}  // namespace
}  // namespace temper::layers
