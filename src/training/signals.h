#pragma once
#include <csignal>

namespace temper::training {

// While one lives, SIGINT, SIGTERM and SIGUSR1, which launchers pass on to all ranks, only set a flag: the
// loop saves and leaves. A second signal ends the process at once, but for SIGUSR1, which launchers may
// repeat. At its end they are handled as they were before, and the handlers' stack is what it was. On one
// thread; scopes may lie within each other.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool requested() const;  // stop_is_requested()

 private:
  struct sigaction interrupt_ {
  }, terminate_{}, user_{};  // before
  stack_t stack_{};
};

// Whether a signal has come while a StopSignals lives: for what takes longer than the loop wants to wait.
bool stop_is_requested();

}  // namespace temper::training
