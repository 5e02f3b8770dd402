#pragma once
#include <pthread.h>
#include <signal.h>

namespace temper {

// For a thread beside the main one: signals are for that one, and SIGPIPE, of a pipe or connection that the
// other side has closed, is for nobody. Those that tell of the thread's own mistakes cannot be put off.
inline void leave_signals_to_others() {
  sigset_t others;
  ::sigfillset(&others);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) ::sigdelset(&others, own);
  ::pthread_sigmask(SIG_SETMASK, &others, nullptr);
}

}  // namespace temper
