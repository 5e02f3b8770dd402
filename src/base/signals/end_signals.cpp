#include "base/signals/end_signals.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/signals/signal_handlers.h"

namespace temper {
namespace {

volatile std::sig_atomic_t silent = 0, program_ends = 0;
void (*volatile last_words)() = nullptr;

// Only what is safe in handlers of signals.
void on_signal(int /*signal*/) {
  if (program_ends != 0) return;
  constexpr std::string_view kSaid = "\ntemper: stopped by a signal; run the same command again\n";
  if (silent == 0) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
  if (last_words != nullptr) last_words();
  ::_exit(static_cast<int>(ErrorKind::kInterrupted));
}

}  // namespace

void end_on_signals() {
  use_signal_stack();
  handle_ending_signals(on_signal);
}

void set_exit_callback(void (*words)()) { last_words = words; }
void end_silently() { silent = 1; }
bool ends_silently() { return silent != 0; }

void leave_end_to_program() { program_ends = 1; }

void ignore_broken_pipes() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace temper
