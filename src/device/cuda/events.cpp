#include "device/cuda/events.h"

#include <map>
#include <mutex>
#include <vector>

namespace temper::device {
namespace {

struct FreeEvents {
  std::mutex mutex;
  std::map<int, std::vector<cudaEvent_t>> by_gpu;
};

FreeEvents& free_events() {
  static auto& all = *new FreeEvents;  // never destroyed: the driver may be gone when static objects go
  return all;
}

}  // namespace

Event::Event(int gpu) : gpu_(gpu) {
  FreeEvents& all = free_events();
  {
    const std::lock_guard lock(all.mutex);
    if (std::vector<cudaEvent_t>& free = all.by_gpu[gpu]; !free.empty()) {
      event_ = free.back();
      free.pop_back();
      return;
    }
  }
  const CurrentGpu current(gpu);
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

Event::~Event() {
  FreeEvents& all = free_events();
  const std::lock_guard lock(all.mutex);
  all.by_gpu[gpu_].push_back(event_);
}

}  // namespace temper::device
