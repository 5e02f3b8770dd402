#include "device/cuda/alone.h"

#include <array>
#include <memory>
#include <mutex>

#include "device/cuda/events.h"

namespace temper::device {
namespace {

// The end of the work that ran alone last. Locked from before a launch to behind it.
struct Last {
  std::mutex mutex;
  std::unique_ptr<Event> done;
};

Last& last_of(int gpu) {
  // Never destroyed: the driver may be gone when static objects go.
  static auto& all = *new std::array<Last, kMaxGpus>;
  return all.at(static_cast<size_t>(gpu));
}

}  // namespace

AloneScope::AloneScope(Device gpu) : gpu_(gpu.index), order_(stream(gpu)) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(order_, &status), "cudaStreamIsCapturing");
  if (streams(gpu_).count() == 1 || status != cudaStreamCaptureStatusNone) return;
  Last& last = last_of(gpu_);
  std::unique_lock lock(last.mutex);
  if (last.done == nullptr)
    last.done = std::make_unique<Event>(gpu_);
  else
    check(cudaStreamWaitEvent(order_, last.done->get(), 0), "cudaStreamWaitEvent");
  lock.release();
  orders_ = true;
}

AloneScope::~AloneScope() {
  if (!orders_) return;
  Last& last = last_of(gpu_);
  last.done->record(order_);  // what fails here fails at the next call, too
  last.mutex.unlock();
}

}  // namespace temper::device
