#include "device/sharing.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace temper::device {
namespace {

// Linux passes at most 253 descriptors in one message.
constexpr size_t kMostDescriptors = 128;

struct Header {
  int64_t offset = 0, bytes = 0, chunks = 0;
};

[[noreturn]] void fail_socket(const char* action) {
  fail_resources("[device] a block of memory cannot be {} over a socket: {}", action, std::strerror(errno));
}

// One message: the header, with some of the descriptors.
struct Message {
  Message(Header& header, size_t descriptors) {
    part.iov_base = &header;
    part.iov_len = sizeof(header);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
  }
  iovec part{};
  msghdr message{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
};

void wait_for_bytes(int socket, double until) {
  for (;;) {
    const double left = until - seconds_now();
    pollfd each{socket, POLLIN, 0};
    if (left > 0 && ::poll(&each, 1, static_cast<int>(std::ceil(left * 1e3))) > 0) return;
    if (left <= 0) {
      errno = ETIMEDOUT;
      fail_socket("received");
    }
  }
}

std::map<DeviceType, SharingFunctions>& all_functions() {
  static std::map<DeviceType, SharingFunctions> all;
  return all;
}

}  // namespace

Descriptor::~Descriptor() {
  if (file_ >= 0) ::close(file_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

std::vector<Descriptor> descriptors_of(msghdr& message) {
  std::vector<Descriptor> all;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      all.emplace_back(file);
    }
  }
  return all;
}

void send_block(int socket, const SharedBlock& block) {
  Header header{block.offset, block.bytes, static_cast<int64_t>(block.chunks.size())};
  for (size_t first = 0; first < block.chunks.size(); first += kMostDescriptors) {
    const size_t count = std::min(kMostDescriptors, block.chunks.size() - first);
    Message out(header, count);
    cmsghdr* control = CMSG_FIRSTHDR(&out.message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; ++i) {
      const int file = block.chunks[first + i].get();
      std::memcpy(CMSG_DATA(control) + i * sizeof(int), &file, sizeof(int));
    }
    ssize_t sent = 0;
    do sent = ::sendmsg(socket, &out.message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent != static_cast<ssize_t>(sizeof(header))) fail_socket("sent");
  }
}

SharedBlock receive_block(int socket, double deadline_seconds) {
  const double until = seconds_now() + deadline_seconds;
  SharedBlock block;
  Header header{0, 0, 1};
  while (std::ssize(block.chunks) < header.chunks) {
    Message in(header, kMostDescriptors);
    wait_for_bytes(socket, until);
    const ssize_t got = ::recvmsg(socket, &in.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) fail_socket("received");
    std::vector<Descriptor> files = descriptors_of(in.message);
    const auto count = std::ssize(files);
    std::move(files.begin(), files.end(), std::back_inserter(block.chunks));
    // A header is sent at once, and comes so.
    if (got != static_cast<ssize_t>(sizeof(header)) || count == 0 || std::ssize(block.chunks) > header.chunks)
      fail("[device] a block of memory came over a socket without its file descriptors, or in pieces");
    if ((in.message.msg_flags & MSG_CTRUNC) != 0)
      fail_resources("[device] no file descriptors are free for a block of memory");
  }
  block.offset = header.offset;
  block.bytes = header.bytes;
  return block;
}

void register_sharing(DeviceType type, SharingFunctions functions) { all_functions()[type] = functions; }

const SharingFunctions& sharing_of(Device device) {
  const auto found = all_functions().find(device.type);
  if (found == all_functions().end())
    fail_resources("[device] memory of {} cannot be shared between processes", to_string(device));
  return found->second;
}

uint64_t checksum_of(const void* memory, int64_t bytes) {
  const auto* at = static_cast<const std::byte*>(memory);
  const auto words = static_cast<uint64_t>(bytes) / sizeof(uint64_t);
  uint64_t sum = 0, word = 0;
  for (uint64_t i = 0; i < words; ++i) {
    std::memcpy(&word, at + i * sizeof word, sizeof word);
    sum += checksum_part(i, word);
  }
  word = 0;
  std::memcpy(&word, at + words * sizeof word, static_cast<uint64_t>(bytes) % sizeof word);
  return sum + checksum_part(words, word) + checksum_part(words + 1, static_cast<uint64_t>(bytes));
}

}  // namespace temper::device
