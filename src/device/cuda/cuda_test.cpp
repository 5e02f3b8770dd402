// On machines with a GPU; elsewhere only that the lack of one is said clearly.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "device/memory.h"
#include "device/transfer.h"

namespace temper {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0}, kHost{};

class CudaMemory : public testing::Test {
 protected:
  void SetUp() override {
    try {
      pool(kGpu);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kResources);
      EXPECT_EQ(std::string(error.what()).find("[cuda] "), 0u) << error.what();
      GTEST_SKIP() << error.what();
    }
  }

  static void* allocate(int64_t bytes, MemoryTag tag) { return pool(kGpu).allocate(bytes, tag); }
  static void release(void* memory, MemoryTag tag) { pool(kGpu).release(memory, tag); }
  static RegionUsage usage(MemoryTag tag) { return pool(kGpu).usage()[static_cast<size_t>(tag)]; }

  static std::vector<uint8_t> pattern(size_t bytes, int seed) {
    std::vector<uint8_t> values(bytes);
    for (size_t i = 0; i < bytes; ++i)
      values[i] = static_cast<uint8_t>((i * 31 + static_cast<size_t>(seed)) % 251);
    return values;
  }
  static std::vector<uint8_t> read(const void* memory, size_t bytes) {
    std::vector<uint8_t> values(bytes);
    transfer(values.data(), kHost, memory, kGpu, static_cast<int64_t>(bytes));
    return values;
  }
};

TEST_F(CudaMemory, BytesGoThereAndBack) {
  const auto sent = pattern(100 << 20, 1);  // more than one chunk
  const auto bytes = static_cast<int64_t>(sent.size());
  void* a = allocate(bytes, MemoryTag::kWorkspace);
  void* b = allocate(bytes, MemoryTag::kWorkspace);
  transfer(a, kGpu, sent.data(), kHost, bytes);
  transfer(b, kGpu, a, kGpu, bytes);
  EXPECT_EQ(read(b, sent.size()), sent);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  release(a, MemoryTag::kWorkspace);
  release(b, MemoryTag::kWorkspace);
}

TEST_F(CudaMemory, APausedRegionGivesItsMemoryBackAndKeepsItsAddresses) {
  const auto first = pattern(70 << 20, 2), second = pattern(5000, 3);
  void* a = allocate(static_cast<int64_t>(first.size()), MemoryTag::kKvCache);
  void* gap = allocate(1 << 20, MemoryTag::kKvCache);
  void* b = allocate(static_cast<int64_t>(second.size()), MemoryTag::kKvCache);
  release(gap, MemoryTag::kKvCache);
  transfer(a, kGpu, first.data(), kHost, static_cast<int64_t>(first.size()));
  transfer(b, kGpu, second.data(), kHost, static_cast<int64_t>(second.size()));
  const int64_t held = usage(MemoryTag::kKvCache).held;
  EXPECT_GE(held, 70 << 20);
  pool(kGpu).pause(MemoryTag::kKvCache, PauseMode::kKeep);
  EXPECT_EQ(usage(MemoryTag::kKvCache).held, 0);
  EXPECT_THROW(allocate(1, MemoryTag::kKvCache), Error);
  pool(kGpu).resume(MemoryTag::kKvCache);
  EXPECT_EQ(usage(MemoryTag::kKvCache).held, held);
  EXPECT_EQ(read(a, first.size()), first);
  EXPECT_EQ(read(b, second.size()), second);
  pool(kGpu).pause(MemoryTag::kKvCache, PauseMode::kDrop);
  pool(kGpu).resume(MemoryTag::kKvCache);
  transfer(b, kGpu, second.data(), kHost, static_cast<int64_t>(second.size()));
  EXPECT_EQ(read(b, second.size()), second);
  release(a, MemoryTag::kKvCache);
  release(b, MemoryTag::kKvCache);
}

TEST_F(CudaMemory, TheLimitIsAnErrorWithTheTable) {
  const int64_t limit = pool(kGpu).limit();
  try {
    allocate(limit + 1, MemoryTag::kActivations);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources);
    EXPECT_NE(std::string(error.what()).find("'activations' asks for"), std::string::npos);
  }
}

TEST_F(CudaMemory, OneRegionsFreeMemoryServesAnother) {
  // Two thirds of the device, once for each of two regions.
  const int64_t most = pool(kGpu).limit() / 3 * 2;
  void* a = allocate(most, MemoryTag::kWeights);
  release(a, MemoryTag::kWeights);
  void* b = allocate(most, MemoryTag::kOptimizer);
  EXPECT_NE(b, nullptr);
  release(b, MemoryTag::kOptimizer);
}

}  // namespace
}  // namespace temper
