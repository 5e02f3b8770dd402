#include "device/cuda/pinned_backup.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "base/threads/threads.h"
#include "device/cuda/stream.h"

namespace temper::device {
namespace {

constexpr int64_t kPage = 4096, kHugePage = int64_t{2} << 20;

}  // namespace

void PinnedBackup::hold(int64_t bytes) {
  if (bytes <= bytes_) return;
  give_back();
  const int64_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, static_cast<size_t>(whole), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail_resources("[cuda] the CPU has no {} to keep a region's contents in: {}", format_bytes(whole),
                   std::strerror(errno));
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = whole;
  madvise(memory, static_cast<size_t>(whole), MADV_HUGEPAGE);
  try {
    pin();
  } catch (...) {
    give_back();
    throw;
  }
}

// The system clears pages when they are touched first, which is the larger part of the work: all threads do.
void PinnedBackup::pin() {
  parallel_ranges(bytes_ / kPage, kHugePage / kPage, [&](int64_t begin, int64_t end) {
    for (int64_t page = begin; page < end; ++page) memory_[page * kPage] = std::byte{0};
  });
  while (pinned_ < bytes_) {
    const auto piece = static_cast<size_t>(std::min(kPiece, bytes_ - pinned_));
    const cudaError_t result = cudaHostRegister(memory_ + pinned_, piece, cudaHostRegisterDefault);
    if (result != cudaSuccess) {
      cudaGetLastError();  // it is reported here
      fail_resources(
          "[cuda] {} of the CPU's memory, which a region's contents are kept in, cannot be pinned: {}",
          format_bytes(bytes_), cudaGetErrorString(result));
    }
    pinned_ += static_cast<int64_t>(piece);
  }
}

void PinnedBackup::give_back() noexcept {
  if (memory_ == nullptr) return;
  for (int64_t at = 0; at < pinned_; at += kPiece) cudaHostUnregister(memory_ + at);
  munmap(memory_, static_cast<size_t>(bytes_));
  memory_ = nullptr;
  bytes_ = pinned_ = 0;
}

}  // namespace temper::device
