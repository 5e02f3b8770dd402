// A device that only counts: its blocks have addresses and nothing behind them, its copies copy nothing, and
// what is read from it is zero.
#include <cstring>
#include <vector>

#include "device/tagged_pool.h"
#include "device/transfer.h"

namespace temper::device {
namespace {

// No machine has more, so that a plan says what a run needs however much that is.
constexpr int64_t kLimit = int64_t{1} << 44;

// Addresses that no process is given: a kernel that reads them fails at once.
std::byte* next_base(int64_t reserved) {
  static uintptr_t next = uintptr_t{1} << 56;
  const uintptr_t base = next;
  next += static_cast<uintptr_t>(reserved);
  return reinterpret_cast<std::byte*>(base);
}

class CountedRegion final : public Region {
 public:
  explicit CountedRegion(int64_t reserved) : Region(next_base(reserved), reserved, nullptr) {}

 protected:
  bool back(int64_t, int64_t end) override {
    held_ = std::max(held_, end);
    return true;
  }
  void save(const Blocks&, int64_t) override {}
  void restore(const Blocks&) override {}
  void withdraw() override {}
  void give_up() override {}
};

class CountedPool final : public TaggedPool {
 public:
  CountedPool()
      : TaggedPool(kLimit, [](int64_t bytes) -> std::unique_ptr<Region> {
          return std::make_unique<CountedRegion>(bytes);
        }) {}
};

Pool& counted_pool(int index) {
  // Never destroyed, as the others.
  static CountedPool& cpu = *new CountedPool;
  static CountedPool& apart = *new CountedPool;
  return index == 0 ? cpu : apart;
}

class Zeros final : public Reading {
 public:
  explicit Zeros(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {}
  const void* wait() override { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

class EmptyGraph final : public Graph {
 public:
  void run() override {}
};

void transfer(void* to, Device to_device, const void*, Device, int64_t bytes) {
  if (to_device.type == DeviceType::kCpu) std::memset(to, 0, static_cast<size_t>(bytes));
}

std::shared_ptr<Reading> start_reading(const void*, Device, int64_t bytes) {
  return std::make_shared<Zeros>(bytes);
}

std::unique_ptr<Graph> capture(Device, const std::function<void()>& work) {
  work();
  return std::make_unique<EmptyGraph>();
}

}  // namespace

void register_counted() {
  register_pool(DeviceType::kCounted, counted_pool);
  register_device(DeviceType::kCounted, {.transfer = transfer,
                                         .clear = [](void*, Device, int64_t) {},
                                         .synchronize = [](Device) {},
                                         .start_reading = start_reading,
                                         .capture = capture});
}

}  // namespace temper::device
