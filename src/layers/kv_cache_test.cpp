#include "layers/kv_cache.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace temper::layers {
namespace {

Tensor filled(int64_t tokens, float value) {
  Tensor tensor = Tensor::empty({tokens, 1, 2}, DType::kF32, MemoryTag::kActivations);
  for (float& element : tensor.values<float>()) element = value;
  return tensor;
}

TEST(KvCache, GrowsPerLayerAndForgetsTheEnd) {
  KvCache cache(2, 5, 1, 2, DType::kF32);
  for (int64_t layer = 0; layer < 2; ++layer) {
    const auto [k, v] = cache.append(layer, filled(3, 1), filled(3, 2));
    EXPECT_EQ(k.dim(0), 3);
    EXPECT_EQ(v.data<float>()[0], 2);
  }
  cache.advance(3);
  cache.truncate(1);
  EXPECT_EQ(cache.length(), 1);
  const auto [k, v] = cache.append(0, filled(4, 7), filled(4, 8));
  EXPECT_EQ(k.dim(0), 5);
  EXPECT_EQ(k.data<float>()[0], 1);
  EXPECT_EQ(k.data<float>()[2], 7);
  EXPECT_EQ(v.data<float>()[9], 8);
  EXPECT_THROW(cache.append(1, filled(5, 0), filled(5, 0)), Error);
  cache.reserve(8);
  EXPECT_EQ(cache.capacity(), 8);
  EXPECT_EQ(cache.append(0, filled(7, 5), filled(7, 5)).first.data<float>()[0], 1);
}

}  // namespace
}  // namespace temper::layers
