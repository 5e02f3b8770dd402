// Blocks of memory that get from one process to another: their descriptors, and their checksums.
#include "device/sharing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <set>

#include "base/error.h"

namespace temper::device {
namespace {

struct Pair {
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0); }
  std::array<int, 2> ends{};
};

// More descriptors than one message holds.
TEST(Sharing, ABlocksDescriptorsArrive) {
  const Pair pair;
  SharedBlock sent{{}, 4096, 123456789};
  for (int i = 0; i < 300; ++i) sent.chunks.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  send_block(pair.ends[0], sent);
  const SharedBlock received = receive_block(pair.ends[1]);
  EXPECT_EQ(received.offset, sent.offset);
  EXPECT_EQ(received.bytes, sent.bytes);
  ASSERT_EQ(received.chunks.size(), sent.chunks.size());
  struct stat expected {};
  ASSERT_EQ(::stat("/dev/null", &expected), 0);
  for (const Descriptor& each : received.chunks) {
    struct stat found {};
    ASSERT_EQ(::fstat(each.get(), &found), 0);
    EXPECT_EQ(found.st_rdev, expected.st_rdev);
  }
  for (const int end : pair.ends) ::close(end);
}

TEST(Sharing, AnEndThatIsClosedIsAnError) {
  const Pair pair;
  ::close(pair.ends[0]);
  EXPECT_THROW(receive_block(pair.ends[1]), Error);
  SharedBlock block;
  block.chunks.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THROW(send_block(pair.ends[1], block), Error);
  ::close(pair.ends[1]);
}

// Every byte, its place, and how many there are.
TEST(Sharing, AChecksumSeesEveryByteAndItsPlace) {
  std::vector<uint8_t> bytes(41, 0);
  std::set<uint64_t> found;
  for (size_t length = 0; length <= bytes.size(); ++length)
    found.insert(checksum_of(bytes.data(), static_cast<int64_t>(length)));
  EXPECT_EQ(found.size(), bytes.size() + 1);
  for (uint8_t& byte : bytes) {
    byte = 1;
    found.insert(checksum_of(bytes.data(), std::ssize(bytes)));
    byte = 0;
  }
  EXPECT_EQ(found.size(), 2 * bytes.size() + 1);
}

TEST(Sharing, MemoryOfTheCpuIsNotSharedThatWay) {
  EXPECT_THROW(
      try { sharing_of({}); } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kResources);
        throw;
      },
      Error);
}

}  // namespace
}  // namespace temper::device
