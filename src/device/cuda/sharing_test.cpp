// Memory of a GPU that two processes see.
#include "device/cuda/sharing.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "device/memory.h"
#include "device/transfer.h"
#include "tests/support/gpu.h"

namespace temper::device {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0}, kHost{};
constexpr const char* kSocket = "TEMPER_TEST_SOCKET";
constexpr int64_t kBytes = int64_t{80} << 20;  // more than two chunks

struct Pair {
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0); }
  std::array<int, 2> ends{};
};

std::vector<uint8_t> pattern(int seed) {
  std::vector<uint8_t> values(static_cast<size_t>(kBytes));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<uint8_t>((i * 31 + static_cast<size_t>(seed)) % 251);
  return values;
}

std::vector<uint8_t> read(const void* memory) {
  std::vector<uint8_t> values(static_cast<size_t>(kBytes));
  transfer(values.data(), kHost, memory, kGpu, kBytes);
  return values;
}

TEST(CudaSharing, ChecksumsAreThoseOfTheCpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const auto values = pattern(3);
  void* memory = pool(kGpu).allocate(kBytes, MemoryTag::kData);
  transfer(memory, kGpu, values.data(), kHost, kBytes);
  for (const int64_t bytes : {int64_t{1}, int64_t{8}, int64_t{4099}, kBytes})
    EXPECT_EQ(sharing_of(kGpu).checksum(kGpu, memory, bytes), checksum_of(values.data(), bytes)) << bytes;
  pool(kGpu).release(memory, MemoryTag::kData);
}

TEST(CudaSharing, AGpuIsKnownByItsUuidAndReachesItself) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::string identity = sharing_of(kGpu).identity(0);
  EXPECT_EQ(identity.size(), 40u) << identity;
  EXPECT_EQ(identity.substr(0, 4), "GPU-");
  EXPECT_NE(identity.find_first_not_of("GPU-0"), std::string::npos) << identity;
  EXPECT_TRUE(sharing_of(kGpu).reaches(0, identity));
  EXPECT_FALSE(sharing_of(kGpu).reaches(0, "GPU-of-nobody"));
}

// The other process of the next test, which starts it: reads what is there, writes another pattern.
TEST(CudaSharing, DISABLED_OtherProcess) {
  const char* given = std::getenv(kSocket);
  ASSERT_NE(given, nullptr);
  const int socket = std::atoi(given);
  const auto block = sharing_of(kGpu).import_block(kGpu, receive_block(socket, 60));
  EXPECT_EQ(read(block->data()), pattern(1));
  const auto answer = pattern(2);
  transfer(block->data(), kGpu, answer.data(), kHost, kBytes);
  synchronize(kGpu);
}

TEST(CudaSharing, TwoProcessesSeeTheSameMemory) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const Pair pair;
  const pid_t child = ::fork();
  if (child == 0) {  // a process that forked after CUDA began cannot use it: it calls exec
    const int end = ::dup(pair.ends[1]);  // stays open
    ::setenv(kSocket, std::to_string(end).c_str(), 1);
    ::execl("/proc/self/exe", "test_device", "--gtest_also_run_disabled_tests",
            "--gtest_filter=CudaSharing.DISABLED_OtherProcess", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(pair.ends[1]);
  void* gap = pool(kGpu).allocate(5000, MemoryTag::kData);
  void* memory = pool(kGpu).allocate(kBytes, MemoryTag::kData);
  std::string refusal;
  try {
    const auto sent = pattern(1);
    transfer(memory, kGpu, sent.data(), kHost, kBytes);
    synchronize(kGpu);
    send_block(pair.ends[0], sharing_of(kGpu).export_block(memory, kBytes));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources) << error.what();
    refusal = error.what();
  }
  if (!refusal.empty()) ::close(pair.ends[0]);  // ends the child's wait
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (refusal.empty()) {
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(read(memory), pattern(2));
    ::close(pair.ends[0]);
  }
  pool(kGpu).release(memory, MemoryTag::kData);
  pool(kGpu).release(gap, MemoryTag::kData);
  if (!refusal.empty()) GTEST_SKIP() << refusal;
}

}  // namespace
}  // namespace temper::device
