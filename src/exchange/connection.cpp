#include "exchange/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace temper::exchange {

Connection::Connection(int socket, std::string peer, double deadline_seconds)
    : socket_(socket), peer_(std::move(peer)), deadline_seconds_(deadline_seconds) {
  // For what waits in a call on the socket itself: blocks of a device's memory.
  const double whole = std::floor(deadline_seconds);
  const timeval time{static_cast<time_t>(whole),
                     std::max<suseconds_t>(1, static_cast<suseconds_t>((deadline_seconds - whole) * 1e6))};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

Connection::~Connection() { ::close(socket_); }

void Connection::fail_gone() const {
  fail_resources("[weights] {} closed the connection or died before it had answered", peer_);
}

void Connection::wait(short event, double until) const {
  for (;;) {
    const double left = until - seconds_now();
    pollfd each{socket_, event, 0};
    const int ready = left > 0 ? ::poll(&each, 1, static_cast<int>(std::ceil(left * 1e3))) : 0;
    if (ready > 0) return;
    if (ready == 0) fail_resources("[weights] {} did not answer within {:.1f} s", peer_, deadline_seconds_);
    if (errno != EINTR) fail_gone();
  }
}

// The descriptor lies beside the first byte of its message.
void Connection::write(const void* from, size_t bytes, double until, int file) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    wait(POLLOUT, until);
    iovec part{const_cast<char*>(at), bytes};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> beside{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (file >= 0) {
      message.msg_control = beside.data();
      message.msg_controllen = beside.size();
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent <= 0) fail_gone();
    file = -1;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void Connection::read(void* to, size_t bytes, double until, int* file) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    wait(POLLIN, until);
    iovec part{at, bytes};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> beside{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = beside.data();
    message.msg_controllen = beside.size();
    const ssize_t got = ::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) fail_gone();
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      int came = -1;
      std::memcpy(&came, CMSG_DATA(header), sizeof came);
      if (*file >= 0) ::close(*file);
      *file = came;
    }
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

void Connection::send(const Json& message, int file) {
  const std::string text = message.dump();
  if (std::ssize(text) > kLargestMessage)
    fail("[weights] a message has {} bytes, at most {} are allowed; make the chunks smaller", text.size(),
         kLargestMessage);
  const auto length = static_cast<uint32_t>(text.size());
  const double until = seconds_now() + deadline_seconds_;
  write(&length, sizeof length, until, file);
  write(text.data(), text.size(), until, -1);
}

Connection::Message Connection::receive() {
  Message message;
  try {
    uint32_t length = 0;
    read(&length, 1, seconds_now() + deadline_seconds_, &message.file);
    const double until = seconds_now() + deadline_seconds_;
    read(reinterpret_cast<char*>(&length) + 1, sizeof length - 1, until, &message.file);
    if (length > kLargestMessage)
      fail("[weights] {} sent a message of {} bytes, at most {} are allowed; is it this program?", peer_,
           length, kLargestMessage);
    std::string text(length, '\0');
    read(text.data(), text.size(), until, &message.file);
    message.json = Json::parse(text, "weights");
    if (!message.json.is_object())
      fail("[weights] {} sent {}, expected an object", peer_, message.json.kind_name());
  } catch (...) {
    if (message.file >= 0) ::close(message.file);
    throw;
  }
  return message;
}

bool Connection::waits_for_more(int stop) {
  const double until = seconds_now() + deadline_seconds_;
  for (;;) {
    const double left = until - seconds_now();
    if (left <= 0) fail_resources("[weights] {} sent nothing for {:.1f} s", peer_, deadline_seconds_);
    std::array<pollfd, 2> both{{{stop, POLLIN, 0}, {socket_, POLLIN, 0}}};
    ::poll(both.data(), both.size(), static_cast<int>(std::ceil(left * 1e3)));
    if (both[0].revents != 0) fail_resources("[weights] the receiver has ended");
    if (both[1].revents == 0) continue;
    char first = 0;
    const ssize_t got = ::recv(socket_, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    return got > 0;
  }
}

}  // namespace temper::exchange
