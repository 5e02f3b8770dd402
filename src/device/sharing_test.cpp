// Blocks of memory that get from one process to another: their descriptors, and their checksums.
#include "device/sharing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
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
  const SharedBlock received = receive_block(pair.ends[1], 20);
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
  EXPECT_THROW(receive_block(pair.ends[1], 20), Error);
  SharedBlock block;
  block.chunks.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THROW(send_block(pair.ends[1], block), Error);
  ::close(pair.ends[1]);
}

int64_t count_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// Whoever sends: its parts have to come whole and in time, and nothing of it stays open.
TEST(Sharing, ABlockThatDoesNotComeWholeIsAnError) {
  const int64_t before = count_descriptors();
  for (const size_t bytes : {0, 1, 23, 24}) {
    const Pair pair;
    SharedBlock sent{{}, 0, 4096};
    for (int i = 0; i < 5; ++i) sent.chunks.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    send_block(pair.ends[1], sent);
    std::array<char, 24> header{};  // of 5 chunks, without their descriptors
    ASSERT_EQ(::read(pair.ends[0], header.data(), header.size()), 24);
    ASSERT_EQ(::send(pair.ends[0], header.data(), bytes, 0), static_cast<ssize_t>(bytes));
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_THROW(receive_block(pair.ends[1], 0.1), Error) << bytes;
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
    for (const int end : pair.ends) ::close(end);
  }
  EXPECT_EQ(count_descriptors(), before);
}

// More descriptors than were announced, in a message that is cut off.
TEST(Sharing, DescriptorsOfARefusedBlockAreClosed) {
  const int64_t before = count_descriptors();
  for (const size_t bytes : {3, 24}) {
    const Pair pair;
    const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const std::array<int64_t, 3> header{0, 4096, 1};
    iovec part{const_cast<int64_t*>(header.data()), bytes};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> ancillary{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = ancillary.data();
    message.msg_controllen = ancillary.size();
    cmsghdr* const control = CMSG_FIRSTHDR(&message);
    *control = {CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    const std::array<int, 2> files{null.get(), null.get()};
    std::memcpy(CMSG_DATA(control), files.data(), sizeof files);
    ASSERT_EQ(::sendmsg(pair.ends[0], &message, 0), static_cast<ssize_t>(bytes));
    EXPECT_THROW(receive_block(pair.ends[1], 0.1), Error) << bytes;
    for (const int end : pair.ends) ::close(end);
  }
  EXPECT_EQ(count_descriptors(), before);
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
