#pragma once
#include <cstddef>
#include <cstdint>

namespace temper::device {

// Pinned memory of the CPU for what a paused region keeps. Taking it costs far more than copying into it, so
// it stays for the next time.
class PinnedBackup {
 public:
  PinnedBackup() = default;
  ~PinnedBackup() { give_back(); }
  PinnedBackup(const PinnedBackup&) = delete;
  PinnedBackup& operator=(const PinnedBackup&) = delete;

  // At least so many bytes, whose contents are undefined. Called with the region's GPU current. An Error
  // (kResources) where the system has no such memory; then there is none at all.
  std::byte* of(int64_t bytes);
  const std::byte* begin() const { return memory_; }
  int64_t bytes() const { return bytes_; }

 private:
  void pin();
  void give_back() noexcept;

  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0, pinned_ = 0;
};

}  // namespace temper::device
