#pragma once
#include <pthread.h>
#include <signal.h>

namespace temper {

// For all threads except the main one: blocks signals, which the main thread handles, and SIGPIPE of a pipe
// or connection that the other side has closed. Signals of the thread's own faults cannot be blocked.
inline void leave_signals_to_others() {
  sigset_t others;
  ::sigfillset(&others);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) ::sigdelset(&others, own);
  ::pthread_sigmask(SIG_SETMASK, &others, nullptr);
}

}  // namespace temper
