// The streams of each GPU, and the events by which they wait for each other.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/cuda/events.h"
#include "device/cuda/graph.h"
#include "device/cuda/stream.h"

namespace temper::device {
namespace {

thread_local std::array<int, kMaxGpus> current_streams{};

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

class GpuStreams final : public Streams {
 public:
  explicit GpuStreams(int gpu) : gpu_(gpu) {}

  int count() const override { return count_; }
  int current() const override { return current_streams[static_cast<size_t>(gpu_)]; }

  // Called where nothing may be thrown: what cannot be marked now is waited for as a whole later.
  Mark mark(int index) override {
    const cudaStream_t stream = found(index);
    if (stream == nullptr || is_captured(stream)) return nullptr;
    try {
      const CurrentGpu gpu(gpu_);
      auto event = std::make_shared<Event>(gpu_);
      if (event->record(stream) == cudaSuccess) return event;
    } catch (const Error&) {
      // Whoever waits meets what is wrong.
    }
    return nullptr;
  }

  void wait(int index, const Mark& mark) override {
    const cudaStream_t there = found(index), here = use(current());
    if (there == nullptr) return;
    const CurrentGpu gpu(gpu_);
    std::shared_ptr<Event> event = std::static_pointer_cast<Event>(mark);
    if (event == nullptr) {
      refuse_in_capture(there, "memory of another stream");
      event = std::make_shared<Event>(gpu_);
      check(event->record(there), "cudaEventRecord");
    }
    // A graph cannot wait for what is not part of it: the host does.
    check(is_captured(here) ? cudaEventSynchronize(event->get()) : cudaStreamWaitEvent(here, event->get(), 0),
          "waiting for another stream");
  }

  // A lost GPU is reported by the next launch. Work that is captured runs later, and its memory is an
  // arena's.
  void finish() noexcept override {
    const CurrentGpu gpu(gpu_);
    for (const cudaStream_t stream : streams_)
      if (stream != nullptr && !is_captured(stream)) cudaStreamSynchronize(stream);
  }

  // Made when it is first used.
  cudaStream_t use(int index) {
    const std::lock_guard lock(mutex_);
    cudaStream_t& made = streams_.at(static_cast<size_t>(index));
    if (made == nullptr) made = make(index);
    return made;
  }

 private:
  cudaStream_t found(int index) {
    const std::lock_guard lock(mutex_);
    return streams_.at(static_cast<size_t>(index));
  }

  // Blocks that were given back so far have no marks: the new stream begins after all that was asked for.
  cudaStream_t make(int index) {
    const CurrentGpu gpu(gpu_);
    require_supported(gpu_);
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
    if (index >= count_) count_ = index + 1;  // from here on blocks get marks
    for (const cudaStream_t other : streams_) {
      if (other == nullptr) continue;
      refuse_in_capture(other, "a new stream");
      Event event(gpu_);
      check(event.record(other), "cudaEventRecord");
      check(cudaStreamWaitEvent(made, event.get(), 0), "cudaStreamWaitEvent");
    }
    return made;
  }

  const int gpu_;
  std::atomic<int> count_ = 1;
  std::mutex mutex_;
  std::array<cudaStream_t, kMaxStreams> streams_{};
};

GpuStreams& streams_of(int gpu) {
  // Never destroyed: the driver may be gone when static objects go.
  static auto& all = *[] {
    auto* made = new std::vector<std::unique_ptr<GpuStreams>>;
    for (int i = 0; i < kMaxGpus; ++i) made->push_back(std::make_unique<GpuStreams>(i));
    return made;
  }();
  if (gpu < 0 || gpu >= kMaxGpus) fail_resources("[cuda] there is no GPU {}", gpu);
  return *all[static_cast<size_t>(gpu)];
}

}  // namespace

cudaStream_t stream(Device device) {
  GpuStreams& all = streams_of(device.index);
  driver();
  check(cudaSetDevice(device.index), "cudaSetDevice");
  return all.use(all.current());
}

Streams& streams(int gpu) { return streams_of(gpu); }

StreamScope::StreamScope(Device gpu, int index)
    : gpu_(gpu), index_(index), outside_(streams_of(gpu.index).current()) {
  invariant(index > 0 && index < kMaxStreams, "a stream scope of a stream that there is not");
  current_streams[static_cast<size_t>(gpu.index)] = index;
  try {
    stream(gpu);
  } catch (...) {
    current_streams[static_cast<size_t>(gpu.index)] = outside_;
    throw;
  }
}

StreamScope::~StreamScope() { current_streams[static_cast<size_t>(gpu_.index)] = outside_; }

void StreamScope::join() {
  GpuStreams& all = streams_of(gpu_.index);
  const cudaStream_t outside = all.use(outside_), here = all.use(index_);
  const CurrentGpu gpu(gpu_.index);
  Event event(gpu_.index);
  check(event.record(here), "cudaEventRecord");
  check(cudaStreamWaitEvent(outside, event.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace temper::device
