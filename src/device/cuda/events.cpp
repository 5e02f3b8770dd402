#include "device/cuda/events.h"

#include <map>
#include <mutex>
#include <vector>

namespace temper::device {
namespace {

struct FreeEvents {
  std::mutex mutex;
  std::map<std::pair<int, Event::Kind>, std::vector<cudaEvent_t>> by_kind;
};

FreeEvents& free_events() {
  static auto& all = *new FreeEvents;  // never destroyed: the driver may be gone when static objects go
  return all;
}

}  // namespace

Event::Event(int gpu, Kind kind) : kind_(gpu, kind) {
  FreeEvents& all = free_events();
  {
    const std::lock_guard lock(all.mutex);
    if (std::vector<cudaEvent_t>& free = all.by_kind[kind_]; !free.empty()) {
      event_ = free.back();
      free.pop_back();
      return;
    }
  }
  const CurrentGpu current(gpu);
  check(cudaEventCreateWithFlags(&event_, kind == Kind::kTimed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreate");
}

Event::~Event() {
  FreeEvents& all = free_events();
  const std::lock_guard lock(all.mutex);
  all.by_kind[kind_].push_back(event_);
}

}  // namespace temper::device
