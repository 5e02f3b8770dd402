#include "base/signals/file_signals.h"

#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace temper {
namespace {

void on_lost_page(int /*signal*/) {
  constexpr std::string_view kMessage =
      "\ntemper: a file that is being read was cut short by another program, or its disk failed. Everything "
      "saved before is intact: restore the file and run the same command to resume\n";
  // Nothing else may be called here.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(2);
}

}  // namespace

void handle_file_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &action, nullptr);
  action.sa_handler = on_lost_page;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace temper
