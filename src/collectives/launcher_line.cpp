#include "collectives/launcher_line.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/signals/end_signals.h"
#include "collectives/launched.h"

namespace temper::collectives {
namespace {

int line = -1;

void tell(std::string_view what) {
  if (line >= 0) ::send(line, what.data(), what.size(), MSG_NOSIGNAL);
}

}  // namespace

void join_launcher() {
  const char* const name = std::getenv(kLauncherVariable);
  const auto started = name == nullptr ? std::nullopt : launched();
  if (!started) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(std::strlen(name), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name, length);
  ::unsetenv(kLauncherVariable);  // which a rank's own children are none of
  line = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (line < 0 || ::connect(line, reinterpret_cast<const sockaddr*>(&address), size) != 0)
    ::_exit(static_cast<int>(ErrorKind::kResources));
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (started->rank != 0) end_silently();
  set_exit_callback(notify_launcher_end);
  tell(fmt::format("{}{}", kIsHere, started->rank));
}

void notify_launcher_ready() { tell(kIsReady); }
void notify_launcher_end() { tell(kEnds); }

}  // namespace temper::collectives
