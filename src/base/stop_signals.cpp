#include "base/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <vector>

#include "base/end_signals.h"

namespace temper {
namespace {

constexpr std::array<int, 4> kHandled{SIGINT, SIGTERM, SIGUSR1, SIGHUP};

volatile std::sig_atomic_t stop_requested = 0;
const char* volatile said = nullptr;
std::atomic<int> scopes = 0;

void on_signal(int /*signal*/) {
  if (stop_requested == 0 && said != nullptr) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, said, std::strlen(said));
  stop_requested = 1;
}

// oneDNN's compiled products keep values below their stack's end, where the system would put the handler's
// frame: it gets a stack of its own. Signals of the process go to its main thread, which is the one that
// trains.
void use_own_stack(stack_t* before) {
  static std::vector<std::byte> memory(1 << 16);
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ::sigaltstack(&stack, before);
}

}  // namespace

StopSignals::StopSignals(const char* sentence, bool ends_program)
    : ends_program_(ends_program), exceptions_(std::uncaught_exceptions()), said_before_(said) {
  said = ends_silently() ? nullptr : sentence;
  if (scopes++ == 0) stop_requested = 0;
  use_own_stack(&stack_);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  for (size_t i = 0; i < kHandled.size(); ++i) {
    ::sigaction(kHandled[i], nullptr, &before_[i]);
    if (kHandled[i] != SIGHUP || before_[i].sa_handler != SIG_IGN) ::sigaction(kHandled[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  if (ends_program_ && stop_requested != 0 && scopes == 1 && std::uncaught_exceptions() > exceptions_)
    leave_end_to_program();
  for (size_t i = 0; i < kHandled.size(); ++i) ::sigaction(kHandled[i], &before_[i], nullptr);
  ::sigaltstack(&stack_, nullptr);
  said = said_before_;
  if (--scopes == 0) stop_requested = 0;
}

bool StopSignals::requested() const { return stop_is_requested(); }

bool stop_is_requested() { return stop_requested != 0; }

}  // namespace temper
