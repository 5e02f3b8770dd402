#pragma once
#include <utility>

#include "device/cuda/driver.h"

namespace temper::device {

// Makes a GPU current for the calling thread, and at its end the one that was.
class CurrentGpu {
 public:
  explicit CurrentGpu(int gpu) {
    cudaGetDevice(&before_);
    if (before_ != gpu) cudaSetDevice(gpu);
  }
  ~CurrentGpu() { cudaSetDevice(before_); }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
};

// An event of one GPU, to be recorded before anyone waits for it; taken from those that are free, because
// making them takes long. Streams that wait for it still do so after it is destroyed.
class Event {
 public:
  enum class Kind { kOrder, kTimed };  // kTimed: knows when it was recorded, too
  explicit Event(int gpu, Kind kind = Kind::kOrder);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t get() const { return event_; }
  cudaError_t record(cudaStream_t stream) { return cudaEventRecord(event_, stream); }

 private:
  const std::pair<int, Kind> kind_;  // of its GPU
  cudaEvent_t event_ = nullptr;
};

}  // namespace temper::device
