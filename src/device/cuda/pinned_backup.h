#pragma once
#include <algorithm>
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

  // Makes it hold at least `bytes` bytes, whose contents are undefined. Called with the region's GPU current.
  // An Error (kResources) where the system has no such memory; then there is none at all.
  void hold(int64_t bytes);
  // Calls f(std::byte* part, int64_t done, int64_t size) for one part after the other of the `bytes` bytes
  // that begin at `begin`. CUDA refuses a copy that crosses from memory pinned by one call into that of the
  // next.
  template <class F>
  void for_parts(int64_t begin, int64_t bytes, F&& f) const {
    for (int64_t done = 0, size = 0; done < bytes; done += size) {
      const int64_t at = begin + done;
      size = std::min(bytes - done, kPiece - at % kPiece);
      f(memory_ + at, done, size);
    }
  }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kPiece = int64_t{1} << 30;  // pinned at a time

  void pin();
  void give_back() noexcept;

  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0, pinned_ = 0;
};

}  // namespace temper::device
