#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "exchange/connection.h"

namespace temper::exchange {
namespace {

constexpr int kBacklog = 64;  // ranks of one trainer come at once

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

bool connects(int socket, const sockaddr_un& address) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

void remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return;
  if (!S_ISSOCK(found.st_mode))
    fail("[{}] is there and no socket; name another path for weights to come through", path);
  const int probe = new_socket();
  const bool lives = connects(probe, address);
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

int connect_to(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const int socket = new_socket();
  if (connects(socket, address)) return socket;
  const std::string reason = std::strerror(errno);
  ::close(socket);
  fail("[{}] nobody takes weights there ({}); start 'temper batch … --weights-from {}' first", path, reason,
       path);
}

}  // namespace temper::exchange
