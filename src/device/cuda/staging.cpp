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
#include "base/threads.h"
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

// Pinned memory and an event for a copy; taking pinned memory waits for the GPU, so they are used again.
struct Slip {
  void* memory = nullptr;
  cudaEvent_t arrived = nullptr;
  uint64_t bytes = 0;
};
constexpr uint64_t kSmallestSlip = 4096;

// Slips are as large as powers of two, so that few sizes serve all copies.
class Slips {
 public:
  Slip take(int64_t bytes) {
    const uint64_t size = std::bit_ceil(std::max(static_cast<uint64_t>(bytes), kSmallestSlip));
    const std::lock_guard lock(mutex_);
    if (std::vector<Slip>& free = free_[size]; !free.empty()) {
      const Slip slip = free.back();
      free.pop_back();
      return slip;
    }
    Slip slip;
    slip.bytes = size;
    check(cudaMallocHost(&slip.memory, size), "cudaMallocHost");
    check(cudaEventCreateWithFlags(&slip.arrived, cudaEventDisableTiming), "cudaEventCreate");
    return slip;
  }
  void give_back(Slip slip) {
    const std::lock_guard lock(mutex_);
    free_[slip.bytes].push_back(slip);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::vector<Slip>> free_;
};

Slips& slips() {
  static Slips& all = *new Slips;  // never destroyed: the driver may be gone when static objects go
  return all;
}

class PinnedReading final : public Reading {
 public:
  PinnedReading(const void* from, Device gpu, int64_t bytes) : slip_(slips().take(bytes)) {
    const cudaStream_t order = stream(gpu);
    refuse_in_capture(order, "a copy to the CPU");
    check(cudaMemcpyAsync(slip_.memory, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, order),
          "cudaMemcpyAsync");
    check(cudaEventRecord(slip_.arrived, order), "cudaEventRecord");
  }
  ~PinnedReading() override {
    cudaEventSynchronize(slip_.arrived);
    slips().give_back(slip_);
  }
  const void* wait() override {
    check(cudaEventSynchronize(slip_.arrived), "the GPU's work");
    return slip_.memory;
  }

 private:
  const Slip slip_;
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

std::shared_ptr<Reading> start_reading_gpu(const void* from, Device gpu, int64_t bytes) {
  return std::make_shared<PinnedReading>(from, gpu, bytes);
}

}  // namespace temper::device
