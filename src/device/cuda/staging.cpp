#include "device/cuda/staging.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/threads/threads.h"
#include "device/cuda/events.h"
#include "device/cuda/graph.h"

namespace temper::device {
namespace {

constexpr int64_t kPiece = 16 << 20;
constexpr int64_t kGrain = 1 << 20;  // of a thread's share of a copy

// Pinned pieces of one GPU, used in turn; each has an event that tells when its last copy is done.
class Staging {
 public:
  Staging() {
    for (Piece& piece : pieces_) {
      void* memory = nullptr;
      check(cudaMallocHost(&memory, kPiece), "cudaMallocHost");
      piece.memory = static_cast<std::byte*>(memory);
      check(cudaEventCreateWithFlags(&piece.done, cudaEventDisableTiming), "cudaEventCreate");
    }
  }

  void upload(std::byte* to, const std::byte* from, int64_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    for (int64_t at = 0; at < bytes; at += kPiece) {
      const int64_t size = std::min(kPiece, bytes - at);
      const Piece& piece = next();
      check(cudaEventSynchronize(piece.done), "waiting for a copy");
      copy(piece.memory, from + at, size);
      check(cudaMemcpyAsync(to + at, piece.memory, static_cast<size_t>(size), cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
      check(cudaEventRecord(piece.done, stream), "cudaEventRecord");
    }
  }

  void download(std::byte* to, const std::byte* from, int64_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    // One piece travels while the one before is copied on.
    const Piece* before = nullptr;
    const auto finish = [&](int64_t at) {
      check(cudaEventSynchronize(before->done), "waiting for a copy");
      copy(to + at, before->memory, std::min(kPiece, bytes - at));
    };
    for (int64_t at = 0; at < bytes; at += kPiece) {
      const Piece& piece = next();
      check(cudaEventSynchronize(piece.done), "waiting for a copy");
      check(cudaMemcpyAsync(piece.memory, from + at, static_cast<size_t>(std::min(kPiece, bytes - at)),
                            cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
      check(cudaEventRecord(piece.done, stream), "cudaEventRecord");
      if (before != nullptr) finish(at - kPiece);
      before = &piece;
    }
    finish((bytes - 1) / kPiece * kPiece);
  }

 private:
  struct Piece {
    std::byte* memory = nullptr;
    cudaEvent_t done = nullptr;
  };

  const Piece& next() { return pieces_[turn_++ % pieces_.size()]; }

  static void copy(std::byte* to, const std::byte* from, int64_t bytes) {
    parallel_ranges(bytes, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  }

  std::mutex mutex_;
  std::array<Piece, 4> pieces_;
  size_t turn_ = 0;
};

// Pinned memory and an event of the GPU from which something is copied there. Taking pinned memory waits for
// the GPU, so it is used again; sizes are powers of two, so that few of them serve all copies.
class Slip {
 public:
  Slip(int gpu, int64_t bytes) : free_(free_of(bytes)), arrived_(gpu) {
    const std::lock_guard lock(free_.mutex);
    if (free_.memory.empty()) {
      check(cudaMallocHost(&memory_, free_.bytes), "cudaMallocHost");
      return;
    }
    memory_ = free_.memory.back();
    free_.memory.pop_back();
  }
  // Of a copy that was never asked for nothing is on its way.
  ~Slip() {
    if (recorded_) cudaEventSynchronize(arrived_.get());
    const std::lock_guard lock(free_.mutex);
    free_.memory.push_back(memory_);
  }
  Slip(const Slip&) = delete;
  Slip& operator=(const Slip&) = delete;

  void copy(const void* from, int64_t bytes, cudaStream_t order) {
    check(cudaMemcpyAsync(memory_, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, order),
          "cudaMemcpyAsync");
    check(arrived_.record(order), "cudaEventRecord");
    recorded_ = true;
  }
  const void* wait() const {
    check(cudaEventSynchronize(arrived_.get()), "the GPU's work");
    return memory_;
  }

 private:
  struct Free {
    explicit Free(size_t size) : bytes(size) {}
    const size_t bytes;
    std::mutex mutex;
    std::vector<void*> memory;
  };
  static Free& free_of(int64_t bytes) {
    constexpr uint64_t kSmallest = 4096;
    // Never destroyed: the driver may be gone when static objects go.
    static auto& all = *new std::map<uint64_t, Free>;
    static std::mutex mutex;
    const uint64_t size = std::bit_ceil(std::max(static_cast<uint64_t>(bytes), kSmallest));
    const std::lock_guard lock(mutex);
    return all.try_emplace(size, size).first->second;
  }

  Free& free_;
  Event arrived_;
  void* memory_ = nullptr;
  bool recorded_ = false;
};

class PinnedReading final : public Reading {
 public:
  PinnedReading(const void* from, int64_t bytes, int gpu, cudaStream_t order) : slip_(gpu, bytes) {
    slip_.copy(from, bytes, order);
  }
  const void* wait() override { return slip_.wait(); }

 private:
  Slip slip_;
};

Staging& staging(Device gpu) {
  // Never destroyed: the driver may be gone when static objects go.
  static std::array<Staging*, 8> all{};
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Staging*& found = all.at(static_cast<size_t>(gpu.index));
  if (found == nullptr) found = new Staging;
  return *found;
}

}  // namespace

void copy_to_gpu(void* to, const void* from, int64_t bytes, Device gpu) {
  const cudaStream_t order = stream(gpu);
  refuse_in_capture(order, "a copy from the CPU");
  staging(gpu).upload(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, order);
}

void copy_from_gpu(void* to, const void* from, int64_t bytes, Device gpu) {
  const cudaStream_t order = stream(gpu);
  refuse_in_capture(order, "a copy to the CPU");
  staging(gpu).download(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, order);
}

void copy_between_gpus(void* to, Device to_gpu, const void* from, Device from_gpu, int64_t bytes) {
  const auto count = static_cast<size_t>(bytes);
  const cudaStream_t source = stream(from_gpu);
  refuse_in_capture(source, "a copy to another GPU");
  Event ready(from_gpu.index), copied(to_gpu.index);
  check(ready.record(source), "cudaEventRecord");
  const cudaStream_t order = stream(to_gpu);
  refuse_in_capture(order, "a copy from another GPU");
  check(cudaStreamWaitEvent(order, ready.get(), 0), "cudaStreamWaitEvent");
  check(cudaMemcpyPeerAsync(to, to_gpu.index, from, from_gpu.index, count, order), "cudaMemcpyPeerAsync");
  check(copied.record(order), "cudaEventRecord");
  // What is written to `from` next, or to memory that was freed there, must not overtake the copy.
  check(cudaStreamWaitEvent(stream(from_gpu), copied.get(), 0), "cudaStreamWaitEvent");
  stream(to_gpu);  // leaves the destination current
}

std::shared_ptr<Reading> start_reading_gpu(const void* from, Device gpu, int64_t bytes) {
  const cudaStream_t order = stream(gpu);
  refuse_in_capture(order, "a copy to the CPU");
  return std::make_shared<PinnedReading>(from, bytes, gpu.index, order);
}

}  // namespace temper::device
