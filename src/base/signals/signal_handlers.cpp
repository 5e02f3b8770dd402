#include "base/signals/signal_handlers.h"

#include <cstddef>

namespace temper {

HandledBefore handle_ending_signals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  HandledBefore before{};
  for (size_t i = 0; i < kEndingSignals.size(); ++i) {
    ::sigaction(kEndingSignals[i], nullptr, &before[i]);
    if (kEndingSignals[i] != SIGHUP || before[i].sa_handler != SIG_IGN)
      ::sigaction(kEndingSignals[i], &action, nullptr);
  }
  return before;
}

stack_t use_signal_stack() {
  static std::array<std::byte, 1 << 16> memory;
  stack_t stack{}, before{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ::sigaltstack(&stack, &before);
  return before;
}

}  // namespace temper
