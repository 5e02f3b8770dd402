// On machines with a GPU; elsewhere only that the lack of one is said clearly.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/cuda/stream.h"
#include "device/memory.h"
#include "device/moments.h"
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

// The CPU's memory is pinned a GiB at a time, and no copy may cross from one into the next.
TEST_F(CudaMemory, BlocksOfAnySizeAreKept) {
  constexpr int64_t kMib = 1 << 20;
  std::vector<std::pair<void*, std::vector<uint8_t>>> blocks;
  for (const int64_t mib : {700, 900, 1500}) {  // beginning and ending within pieces, and longer than one
    blocks.emplace_back(allocate(mib * kMib, MemoryTag::kKvCache),
                        pattern(static_cast<size_t>(mib * kMib), static_cast<int>(mib)));
    transfer(blocks.back().first, kGpu, blocks.back().second.data(), kHost, mib * kMib);
  }
  pool(kGpu).pause(MemoryTag::kKvCache, PauseMode::kKeep);
  pool(kGpu).resume(MemoryTag::kKvCache);
  for (const auto& [memory, values] : blocks) {
    EXPECT_TRUE(read(memory, values.size()) == values) << values.size();
    release(memory, MemoryTag::kKvCache);
  }
}

// Asks a GPU for work that takes some tens of milliseconds.
void keep_busy(Device gpu) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  void* memory = pool(gpu).allocate(kBytes, MemoryTag::kWorkspace);
  for (int i = 0; i < 300; ++i) clear(memory, gpu, kBytes);
  pool(gpu).release(memory, MemoryTag::kWorkspace);
}

// What a stream is still going to write must not reach memory that another stream has got meanwhile.
TEST_F(CudaMemory, MemoryServesAnotherStreamWhenItsUserIsDone) {
  { const device::StreamScope made(kGpu, 1); }
  const auto sent = pattern(8 << 20, 4);
  const auto bytes = static_cast<int64_t>(sent.size());
  void* first = allocate(bytes, MemoryTag::kKvCache);
  keep_busy(kGpu);
  clear(first, kGpu, bytes);
  release(first, MemoryTag::kKvCache);
  {
    const device::StreamScope scope(kGpu, 1);
    void* second = allocate(bytes, MemoryTag::kKvCache);
    EXPECT_EQ(second, first);
    transfer(second, kGpu, sent.data(), kHost, bytes);
    synchronize(kGpu);
    EXPECT_EQ(read(second, sent.size()), sent);
    release(second, MemoryTag::kKvCache);
  }
}

// The same where the second stream only joined in: its work is waited for, too.
TEST_F(CudaMemory, MemoryWaitsForEveryStreamThatUsedIt) {
  { const device::StreamScope made(kGpu, 1); }
  const auto sent = pattern(8 << 20, 5);
  const auto bytes = static_cast<int64_t>(sent.size());
  void* first = allocate(bytes, MemoryTag::kKvCache);
  {
    const device::StreamScope scope(kGpu, 1);
    pool(kGpu).used(first, MemoryTag::kKvCache);
    keep_busy(kGpu);
    clear(first, kGpu, bytes);
  }
  release(first, MemoryTag::kKvCache);
  void* second = allocate(bytes, MemoryTag::kKvCache);
  EXPECT_EQ(second, first);
  transfer(second, kGpu, sent.data(), kHost, bytes);
  synchronize(kGpu);
  EXPECT_EQ(read(second, sent.size()), sent);
  release(second, MemoryTag::kKvCache);
}

// Readings that are refused free their pinned memory, and so do those that are not waited for.
TEST_F(CudaMemory, ReadingsReuseTheirMemory) {
  void* memory = allocate(1 << 20, MemoryTag::kWorkspace);
  clear(memory, kGpu, 1 << 20);
  const void* seen = start_reading(memory, kGpu, 1 << 20)->wait();
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(capture(kGpu, [&] { start_reading(memory, kGpu, 1 << 20); }), CannotCapture);
    start_reading(memory, kGpu, 1 << 20);
  }
  EXPECT_EQ(start_reading(memory, kGpu, 1 << 20)->wait(), seen);
  release(memory, MemoryTag::kWorkspace);
}

// Of the device's work, not of the host's calls.
TEST_F(CudaMemory, MomentsAreInTheOrderOfWork) {
  constexpr int64_t kBytes = 1 << 28;
  void* memory = allocate(kBytes, MemoryTag::kWorkspace);
  clear(memory, kGpu, kBytes);
  const auto begin = mark(kGpu), same = mark(kGpu);
  for (int i = 0; i < 50; ++i) clear(memory, kGpu, kBytes);
  const auto end = mark(kGpu);
  // 12.5 GiB, of which no GPU writes more than 20 TB a second.
  EXPECT_GT(end->seconds_since(*begin), 50.0 * kBytes / 20e12);
  EXPECT_GE(same->seconds_since(*begin), 0);
  EXPECT_LT(same->seconds_since(*begin), end->seconds_since(*begin));
  release(memory, MemoryTag::kWorkspace);
}

class CudaPair : public CudaMemory {
 protected:
  void SetUp() override {
    CudaMemory::SetUp();
    if (IsSkipped()) return;
    if (const int found = device::num_gpus(); found < 2)
      GTEST_SKIP() << "needs two GPUs, this machine has " << found;
    here_ = pool(kGpu).allocate(kBytes, MemoryTag::kWorkspace);
    there_ = pool(kOther).allocate(kBytes, MemoryTag::kWorkspace);
  }
  void TearDown() override {
    if (here_ != nullptr) pool(kGpu).release(here_, MemoryTag::kWorkspace);
    if (there_ != nullptr) pool(kOther).release(there_, MemoryTag::kWorkspace);
  }
  std::vector<uint8_t> read_there() const {
    std::vector<uint8_t> values(kBytes);
    transfer(values.data(), kHost, there_, kOther, kBytes);
    return values;
  }

  static constexpr Device kOther{DeviceType::kCuda, 1};
  static constexpr int64_t kBytes = 64 << 20;
  void *here_ = nullptr, *there_ = nullptr;
};

TEST_F(CudaPair, ACopyComesAfterTheWorkOfBoth) {
  const auto sent = pattern(kBytes, 6);
  keep_busy(kGpu);
  transfer(here_, kGpu, sent.data(), kHost, kBytes);
  keep_busy(kOther);
  clear(there_, kOther, kBytes);  // must not come after the copy
  transfer(there_, kOther, here_, kGpu, kBytes);
  EXPECT_EQ(read_there(), sent);
}

TEST_F(CudaPair, TheSourceMayBeWrittenToAtOnce) {
  const auto sent = pattern(kBytes, 7);
  transfer(here_, kGpu, sent.data(), kHost, kBytes);
  keep_busy(kOther);  // the copy begins late
  transfer(there_, kOther, here_, kGpu, kBytes);
  clear(here_, kGpu, kBytes);
  EXPECT_EQ(read_there(), sent);
}

TEST_F(CudaPair, ReadingsComeFromEither) {
  const auto sent = pattern(kBytes, 8);
  for (int i = 0; i < 3; ++i)
    for (const auto& [memory, gpu] : {std::pair{here_, kGpu}, {there_, kOther}}) {
      transfer(memory, gpu, sent.data(), kHost, kBytes);
      const auto reading = start_reading(memory, gpu, kBytes);
      EXPECT_EQ(std::memcmp(reading->wait(), sent.data(), sent.size()), 0);
    }
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
