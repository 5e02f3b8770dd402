#include "exchange/mailbox.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace temper::exchange {
namespace {

constexpr size_t kPart = size_t{64} << 10;  // bytes that are read at once
constexpr size_t kTurn = size_t{1} << 20;   // and before others have their turn

[[noreturn]] void fail_gone(const std::string& peer) {
  fail_resources("[weights] {} closed the connection or died before it had answered", peer);
}

}  // namespace

// How many bytes came; 0 where there are none yet, or none any more (is_closed).
size_t Inbox::receive(int socket, char* to, size_t bytes) {
  iovec part{to, bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (got <= 0) {
    if (!is_empty()) fail_gone(peer_);
    closed_ = true;
    return 0;
  }
  std::vector<device::Descriptor> files = device::descriptors_of(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0 || files.size() + (file_.get() >= 0 ? 1 : 0) > 1)
    fail("[weights] {} sent more than one file descriptor with a message, or none is free here", peer_);
  if (!files.empty()) file_ = std::move(files[0]);
  return static_cast<size_t>(got);
}

std::optional<Message> Inbox::read(int socket, int64_t largest) {
  while (length_bytes_ < sizeof length_) {
    const size_t got =
        receive(socket, reinterpret_cast<char*>(&length_) + length_bytes_, sizeof length_ - length_bytes_);
    if (got == 0) return {};
    length_bytes_ += got;
  }
  if (length_ > largest)
    fail("[weights] {} sent a message of {} bytes, at most {} are allowed; is it this program?", peer_,
         length_, largest);
  std::array<char, kPart> part;
  for (size_t taken = 0; text_.size() < length_; taken += part.size()) {
    const size_t got =
        taken < kTurn ? receive(socket, part.data(), std::min(part.size(), length_ - text_.size())) : 0;
    if (got == 0) return {};
    text_.append(part.data(), got);
  }
  return take();
}

Message Inbox::take() {
  length_bytes_ = 0;
  const std::string text = std::exchange(text_, {});
  Message message{Json::parse(text, "weights"), std::exchange(file_, device::Descriptor())};
  if (!message.json.is_object())
    fail("[weights] {} sent {}, expected an object", peer_, message.json.kind_name());
  return message;
}

void Outbox::put(const Json& message, int file) {
  const std::string text = message.dump();
  if (std::ssize(text) > kLargestMessage)
    fail("[weights] a message has {} bytes, at most {} are allowed; make the chunks smaller", text.size(),
         kLargestMessage);
  if (file >= 0) {
    invariant(is_empty(), "a descriptor goes with a message that waits for another one");
    file_ = file;
  }
  const auto length = static_cast<uint32_t>(text.size());
  bytes_.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes_ += text;
}

// The descriptor comes with the first byte of its message.
void Outbox::write(int socket) {
  while (!is_empty()) {
    iovec part{bytes_.data() + at_, bytes_.size() - at_};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (file_ >= 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &file_, sizeof file_);
    }
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent <= 0) fail_gone(peer_);
    file_ = -1;
    at_ += static_cast<size_t>(sent);
  }
  clear();
}

void Outbox::clear() {
  bytes_ = {};
  at_ = 0;
}

void check_same_user(int socket, const std::string& peer) {
  ucred other{};
  socklen_t bytes = sizeof other;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) != 0)
    fail_resources("[weights] the system does not say whose process {} is: {}", peer, std::strerror(errno));
  if (const uid_t own = ::geteuid(); other.uid != own)
    fail("[weights] {} is a process of user {}, this one is of user {}; both have to be of one user", peer,
         other.uid, own);
}

}  // namespace temper::exchange
