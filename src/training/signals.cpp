#include "training/signals.h"

#include <csignal>

namespace temper::training {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void on_signal(int signal) {
  if (stop_requested != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_requested = 1;
}

}  // namespace

StopSignals::StopSignals() {
  stop_requested = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

StopSignals::~StopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool StopSignals::requested() const { return stop_requested != 0; }

}  // namespace temper::training
