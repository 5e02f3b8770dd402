#pragma once

namespace temper::training {

// While one lives, SIGINT and SIGTERM only set a flag: the loop saves and leaves. A second signal ends the
// process at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool requested() const;
};

}  // namespace temper::training
