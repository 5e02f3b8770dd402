#pragma once
#include <array>
#include <csignal>

namespace temper {

// What asks a program to end.
inline constexpr std::array<int, 4> kEndingSignals{SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// How they were handled before, in that order.
using HandledBefore = std::array<struct sigaction, kEndingSignals.size()>;

// Handles them, but SIGHUP where it is ignored (nohup), on the stack of use_signal_stack(). Calls of the
// system that they interrupt go on.
HandledBefore handle_ending_signals(void (*handler)(int));

// oneDNN's compiled products keep values below their stack's end, where the system would put a handler's
// frame: it gets a stack of its own, one for the process. Signals of the process go to its main thread, which
// is the one that trains. The thread's stack for handlers before.
stack_t use_signal_stack();

}  // namespace temper
