// The CPU's pool: reserved virtual addresses, behind which the system puts pages when they are touched.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "device/host_memory.h"
#include "device/tagged_pool.h"

namespace temper::device {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = 2 << 20;

constexpr int64_t kStep = 32 << 20;  // in which memory becomes writable, where that counts

std::byte* reserve(int64_t bytes, bool writable) {
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), writable ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail_resources(
        "[memory] cannot reserve {} of addresses; see the limits of this process (ulimit -v, ulimit -d)",
        format_bytes(bytes));
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

class CpuRegion final : public Region {
 public:
  explicit CpuRegion(int64_t reserved) : CpuRegion(reserved, !counts_writable_memory()) {}
  ~CpuRegion() override { ::munmap(base_, static_cast<size_t>(reserved_)); }

 protected:
  bool back(int64_t begin, int64_t end) override {
    if (paused() && !allow(0, writable_)) return false;
    if (end > writable_) {
      const int64_t wanted = std::min(round_up(end, kStep), reserved_);
      if (!allow(writable_, wanted)) return false;
      writable_ = wanted;
    }
    held_ += std::max<int64_t>(end - end_, 0);
    end_ = std::max(end_, end);
    bring_back(begin / kPage * kPage, round_up(end, kPage));
    return true;
  }

  // Whole pages of free blocks. What was given up before lies in them: free blocks only merge.
  void give_up() override {
    for (const auto& [offset, bytes] : blocks_.free()) {
      const int64_t begin = round_up(offset, kPage), end = (offset + bytes) / kPage * kPage;
      if (end <= begin) continue;
      const auto known = given_up_.find(begin);
      if (known != given_up_.end() && known->second == end) continue;
      bring_back(begin, end);
      ::madvise(base_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
      given_up_[begin] = end;
      held_ -= end - begin;
    }
  }

  void save(const Blocks& blocks, int64_t all) override {
    backup_.resize(static_cast<size_t>(all));
    std::byte* to = backup_.data();
    for (const auto& [offset, bytes] : blocks) {
      std::memcpy(to, base_ + offset, static_cast<size_t>(bytes));
      to += bytes;
    }
  }

  void restore(const Blocks& blocks) override {
    const std::byte* from = backup_.data();
    for (const auto& [offset, bytes] : blocks) {
      std::memcpy(base_ + offset, from, static_cast<size_t>(bytes));
      from += bytes;
    }
    backup_ = {};
  }

  void withdraw() override {
    ::madvise(base_, static_cast<size_t>(writable_), MADV_DONTNEED);
    ::mprotect(base_, static_cast<size_t>(reserved_), PROT_NONE);
    given_up_.clear();
    end_ = 0;
  }

 private:
  CpuRegion(int64_t reserved, bool writable)
      : Region(reserve(reserved, writable), reserved, nullptr), writable_(writable ? reserved : 0) {}

  bool allow(int64_t begin, int64_t end) {
    return ::mprotect(base_ + begin, static_cast<size_t>(end - begin), PROT_READ | PROT_WRITE) == 0;
  }

  // Of these pages none is given up any more.
  void bring_back(int64_t begin, int64_t end) {
    auto piece = given_up_.upper_bound(begin);
    if (piece != given_up_.begin() && std::prev(piece)->second > begin) --piece;
    while (piece != given_up_.end() && piece->first < end) {
      const auto [from, to] = *piece;
      piece = given_up_.erase(piece);
      held_ += std::min(to, end) - std::max(from, begin);
      if (from < begin) given_up_[from] = begin;
      if (to > end) given_up_[end] = to;
    }
  }

  int64_t writable_;                     // bytes, from the beginning
  int64_t end_ = 0;                      // of what was ever handed out, since the last pause
  std::map<int64_t, int64_t> given_up_;  // pages that went back to the system: from → to
  std::vector<std::byte> backup_;
};

class CpuPool final : public TaggedPool {
 public:
  CpuPool() : CpuPool(host_memory()) {}

 private:
  // Kept below what is available, so that the system's out-of-memory killer is never asked. Of few addresses
  // the other half is for files that are mapped, threads and libraries.
  explicit CpuPool(const HostMemory& memory)
      : TaggedPool(
            memory.bytes / 100 * 95,
            [](int64_t bytes) -> std::unique_ptr<Region> {
              return std::make_unique<CpuRegion>(round_up(bytes, kHugePage));
            },
            free_addresses() < 0 ? -1 : free_addresses() / 2, memory.limited_by) {}
};

Pool& cpu_pool(int) {
  // Never destroyed: tensors in static storage may outlive it.
  static CpuPool& pool = *new CpuPool;
  return pool;
}

}  // namespace

void register_cpu() { register_pool(DeviceType::kCpu, cpu_pool); }

}  // namespace temper::device
