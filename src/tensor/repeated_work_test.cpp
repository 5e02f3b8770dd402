#include "tensor/repeated_work.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "device/transfer.h"
#include "tensor/device_functions.h"
#include "tensor/tensor.h"
#include "tests/support/gpu.h"

namespace temper {
namespace {

TEST(Arena, KeepsItsMemoryForItself) {
  const auto live = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kWorkspace)].live; };
  const auto make = [](int64_t bytes) { return Tensor::empty({bytes}, DType::kU8, MemoryTag::kWorkspace); };
  const int64_t before = live();
  Tensor kept;
  {
    Arena arena({});
    const void* place = nullptr;
    {
      const Arena::Scope scope(arena);
      place = make(1000).raw();
      EXPECT_EQ(make(900).raw(), place);  // freed, so it serves again
      kept = make(1000);
      EXPECT_EQ(kept.raw(), place);
      EXPECT_NE(make(1000).raw(), place);
      EXPECT_EQ(Tensor::empty({1000}, DType::kU8, MemoryTag::kData).raw() == place, false);
    }
    const int64_t taken = arena.bytes();
    EXPECT_EQ(live(), before + taken);
    EXPECT_GE(taken, 2000);
    const Tensor outside = make(5000);
    kept = Tensor();
    EXPECT_NE(make(1000).raw(), place);  // it is not used for another tensor
    const Arena::Scope scope(arena);
    kept = make(1000);
    EXPECT_EQ(kept.raw(), place);
    const Tensor larger = make(3 * taken);  // more of the pool's memory
    EXPECT_EQ(arena.bytes(), 4 * taken);
  }
  EXPECT_GE(live(), before + 1000);  // with the last tensor on it
  kept = Tensor();
  EXPECT_EQ(live(), before);
}

TEST(RepeatedWork, IsAFunctionOnTheCpu) {
  int runs = 0;
  RepeatedWork work({}, true, [&] { ++runs; });
  for (int i = 0; i < 3; ++i) work.run();
  EXPECT_EQ(runs, 3);
}

class GpuGraph : public testing::Test {
 protected:
  static constexpr Device kGpu{DeviceType::kCuda, 0};
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(GpuGraph, RunsAgainOnTheSameAddresses) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}).on(kGpu, MemoryTag::kData);
  int calls = 0;
  RepeatedWork work(kGpu, true, [&] {
    ++calls;
    x.copy_from(x.to(DType::kBF16).to(DType::kF32));
    const Tensor sum = x.clone();
    tensor_functions(kGpu).add(x, sum);
  });
  for (int i = 0; i < 5; ++i) work.run();
  EXPECT_EQ(calls, 2);  // once plain, once captured
  const Tensor found = x.on({});
  EXPECT_EQ(found.values<float>()[2], 96);
}

TEST_F(GpuGraph, ACopyFromTheCpuEndsTheCapture) {
  const Tensor x = Tensor::from(std::vector<float>{1}).on(kGpu, MemoryTag::kData);
  const float value = 5;
  for (int i = 0; i < 2; ++i) {
    try {
      capture(kGpu, [&] { x.copy_from_host(&value, sizeof(value)); });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "[cuda] a copy from the CPU inside a captured graph");
    }
  }
  x.copy_from_host(&value, sizeof(value));  // the stream works as before
  EXPECT_EQ(x.item(), 5);
}

}  // namespace
}  // namespace temper
