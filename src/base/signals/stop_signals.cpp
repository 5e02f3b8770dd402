#include "base/signals/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>

#include "base/signals/end_signals.h"

namespace temper {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
const char* volatile said = nullptr;
std::atomic<int> scopes = 0;

void on_stop_signal(int /*signal*/) {
  if (stop_requested == 0 && said != nullptr) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, said, std::strlen(said));
  stop_requested = 1;
}

}  // namespace

StopSignals::StopSignals(const char* sentence, bool ends_program)
    : ends_program_(ends_program), exceptions_(std::uncaught_exceptions()), said_before_(said) {
  said = ends_silently() ? nullptr : sentence;
  if (scopes++ == 0) stop_requested = 0;
  stack_ = use_signal_stack();
  before_ = handle_ending_signals(on_stop_signal);
}

StopSignals::~StopSignals() {
  if (ends_program_ && stop_requested != 0 && scopes == 1 && std::uncaught_exceptions() > exceptions_)
    leave_end_to_program();
  for (size_t i = 0; i < kEndingSignals.size(); ++i) ::sigaction(kEndingSignals[i], &before_[i], nullptr);
  ::sigaltstack(&stack_, nullptr);
  said = said_before_;
  if (--scopes == 0) stop_requested = 0;
}

bool StopSignals::requested() const { return stop_is_requested(); }

bool stop_is_requested() { return stop_requested != 0; }

}  // namespace temper
