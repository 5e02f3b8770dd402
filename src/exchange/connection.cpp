#include "exchange/connection.h"

#include <poll.h>

#include <cerrno>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"

namespace temper::exchange {

Connection::Connection(int socket, std::string peer, double deadline_seconds)
    : socket_(socket), peer_(std::move(peer)), deadline_seconds_(deadline_seconds), inbox_(peer_) {}

void Connection::wait(short event, double until) const {
  for (;;) {
    const double left = until - seconds_now();
    pollfd each{socket(), event, 0};
    if (left > 0 && ::poll(&each, 1, static_cast<int>(std::ceil(left * 1e3))) > 0) return;
    if (left <= 0) fail_resources("[weights] {} did not answer within {:.1f} s", peer_, deadline_seconds_);
  }
}

void Connection::send(const Json& message, int file) {
  Outbox outbox(peer_);
  outbox.put(message, file);
  const double until = seconds_now() + deadline_seconds_;
  while (!outbox.is_empty()) {
    wait(POLLOUT, until);
    outbox.write(socket());
  }
}

Message Connection::receive() {
  double until = seconds_now() + deadline_seconds_;
  for (;;) {
    wait(POLLIN, until);
    const bool had_none = inbox_.is_empty();
    if (std::optional<Message> message = inbox_.read(socket())) return std::move(*message);
    if (inbox_.is_closed())
      fail_resources("[weights] {} closed the connection or died before it had answered", peer_);
    if (had_none && !inbox_.is_empty()) until = seconds_now() + deadline_seconds_;
  }
}

}  // namespace temper::exchange
