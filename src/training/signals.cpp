#include "training/signals.h"

#include <atomic>
#include <cstddef>
#include <vector>

namespace temper::training {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
std::atomic<int> scopes = 0;

void on_signal(int signal) {
  if (stop_requested != 0 && signal != SIGUSR1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
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

void handle(int signal, struct sigaction* before) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ::sigaction(signal, &action, before);
}

}  // namespace

StopSignals::StopSignals() {
  stop_requested = 0;
  ++scopes;
  use_own_stack(&stack_);
  handle(SIGINT, &interrupt_);
  handle(SIGTERM, &terminate_);
  handle(SIGUSR1, &user_);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
  ::sigaction(SIGUSR1, &user_, nullptr);
  ::sigaltstack(&stack_, nullptr);
  if (--scopes == 0) stop_requested = 0;
}

bool StopSignals::requested() const { return stop_is_requested(); }

bool stop_is_requested() { return stop_requested != 0; }

}  // namespace temper::training
