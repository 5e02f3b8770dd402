#pragma once
#include "base/signals/signal_handlers.h"

namespace temper {

// While one lives, SIGINT, SIGTERM, SIGHUP and SIGUSR1, which launchers pass on to all ranks, only set a
// flag: the loop saves and leaves; further ones have no effect. SIGHUP that is ignored stays so. At its end
// they are handled as they were before, and the handlers' stack is what it was; where it ends with an
// exception after a signal, they have no effect in a program that ends on signals
// (base/signals/end_signals.h), which says what it has saved. On one thread; scopes may lie within each
// other.
class StopSignals {
 public:
  // `said`: written to standard error at the first signal, where this process speaks; null: nothing.
  // `ends_program`: an exception after a signal ends the program.
  explicit StopSignals(const char* said = nullptr, bool ends_program = false);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool requested() const;  // stop_is_requested()

 private:
  HandledBefore before_{};
  stack_t stack_{};
  bool ends_program_;
  int exceptions_;
  const char* said_before_;
};

// Whether a signal has come while a StopSignals lives: for what takes longer than the loop wants to wait.
bool stop_is_requested();

}  // namespace temper
