// The CPU's pool: reserved virtual addresses, behind which the system puts pages when they are touched.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/tagged_pool.h"

namespace temper::device {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = 2 << 20;

std::byte* reserve(int64_t bytes) {
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail_resources("[memory] cannot reserve {} bytes of addresses", bytes);
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

class CpuRegion final : public Region {
 public:
  explicit CpuRegion(int64_t reserved) : Region(reserve(reserved), reserved) {}
  ~CpuRegion() override { ::munmap(base_, static_cast<size_t>(reserved_)); }

  int64_t trim() override {
    int64_t given = 0;
    for (const auto& [offset, bytes] : blocks_.free()) {
      const int64_t begin = round_up(offset, kPage), end = (offset + bytes) / kPage * kPage;
      if (end <= begin) continue;
      ::madvise(base_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
      given += end - begin;
    }
    return given;
  }

 protected:
  bool back(int64_t bytes) override {
    if (paused()) ::mprotect(base_, static_cast<size_t>(reserved_), PROT_READ | PROT_WRITE);
    held_ = std::max(held_, bytes);
    return true;
  }

  void save() override {
    backup_.resize(static_cast<size_t>(live_));
    std::byte* to = backup_.data();
    for (const auto& [offset, bytes] : blocks_.live()) {
      std::memcpy(to, base_ + offset, static_cast<size_t>(bytes));
      to += bytes;
    }
  }

  void restore() override {
    const std::byte* from = backup_.data();
    for (const auto& [offset, bytes] : blocks_.live()) {
      std::memcpy(base_ + offset, from, static_cast<size_t>(bytes));
      from += bytes;
    }
    backup_ = {};
  }

  void withdraw() override {
    ::madvise(base_, static_cast<size_t>(reserved_), MADV_DONTNEED);
    ::mprotect(base_, static_cast<size_t>(reserved_), PROT_NONE);
  }

 private:
  std::vector<std::byte> backup_;
};

class CpuPool final : public TaggedPool {
 public:
  // Kept below what is available, so that the system's out-of-memory killer is never asked.
  CpuPool()
      : TaggedPool(available_host_bytes() / 100 * 95, [](int64_t bytes) -> std::unique_ptr<Region> {
          return std::make_unique<CpuRegion>(round_up(bytes, kHugePage));
        }) {}
};

Pool& cpu_pool(int) {
  // Never destroyed: tensors in static storage may outlive it.
  static CpuPool& pool = *new CpuPool;
  return pool;
}

}  // namespace

void register_cpu() { register_pool(DeviceType::kCpu, cpu_pool); }

}  // namespace temper::device
