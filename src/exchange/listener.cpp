#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "exchange/connection.h"

namespace temper::exchange {
namespace {

constexpr int kBacklog = 1024;         // ranks of one trainer connect at once, as others may
constexpr double kProbeSeconds = 0.2;  // for a process that listens already

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    fail("[{}] the path of a socket has 1 to {} bytes, this one has {}; choose a shorter one", path,
         sizeof address.sun_path - 1, path.size());
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int new_socket() {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) fail_resources("[weights] no socket can be had: {}", std::strerror(errno));
  return socket;
}

// How long a call on the socket waits that connects it, or sends a block of a device's memory.
void set_deadline(int socket, double seconds) {
  const double whole = std::floor(seconds);
  const timeval time{static_cast<time_t>(whole),
                     std::max<suseconds_t>(1, static_cast<suseconds_t>((seconds - whole) * 1e6))};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

bool connects(int socket, const sockaddr_un& address) {
  int result = 0;
  do result = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

void remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return;
  if (!S_ISSOCK(found.st_mode))
    fail("[{}] is there and no socket; name another path for weights to come through", path);
  const int probe = new_socket();
  set_deadline(probe, kProbeSeconds);
  const bool lives = connects(probe, address) || errno == EAGAIN;
  ::close(probe);
  if (lives) fail("[{}] another process listens there; name another path", path);
  ::unlink(path.c_str());
}

}  // namespace

Listener::Listener(const std::string& path) : path_(path) {
  const sockaddr_un address = address_of(path);
  remove_stale(path, address);
  socket_ = new_socket();
  // Only this user may send weights: the mode is that of the socket before anybody can connect.
  const bool bound = ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     ::chmod(path.c_str(), 0600) == 0 && ::listen(socket_, kBacklog) == 0;
  if (bound) return;
  const std::string reason = std::strerror(errno);
  ::close(socket_);
  fail("[{}] cannot be listened at: {}", path, reason);
}

Listener::~Listener() {
  ::unlink(path_.c_str());
  ::close(socket_);
}

int connect_to(const std::string& path, double deadline_seconds) {
  const sockaddr_un address = address_of(path);
  const int socket = new_socket();
  set_deadline(socket, deadline_seconds);
  if (connects(socket, address)) return socket;
  const int reason = errno;
  ::close(socket);
  if (reason == EAGAIN)
    fail_resources("[{}] who listens there took no connection within {:.1f} s", path, deadline_seconds);
  fail("[{}] no process takes weights there ({}); start 'temper batch … --weights-from {}' first", path,
       std::strerror(reason), path);
}

}  // namespace temper::exchange
