#include "tensor/arena.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "device/block_list.h"

namespace temper {
namespace {

constexpr int64_t kSmallestSlab = 1 << 20;

thread_local Arena* current = nullptr;

}  // namespace

struct Arena::Slabs {
  // A piece of the pool's memory, cut into blocks.
  struct Slab {
    Slab(int64_t size, MemoryTag tag, Device on)
        : size(size), tag(tag), on(on), memory(static_cast<std::byte*>(pool(on).allocate(size, tag))) {}
    ~Slab() { pool(on).release(memory, tag); }
    Slab(const Slab&) = delete;
    Slab& operator=(const Slab&) = delete;

    const int64_t size;
    const MemoryTag tag;
    const Device on;
    std::byte* const memory;
    device::BlockList blocks;
  };

  Slabs(Device device, std::optional<MemoryTag> region) : on(device), region(region) {}

  const Device on;
  const std::optional<MemoryTag> region;
  mutable std::mutex mutex;
  std::vector<std::shared_ptr<Slab>> all;

  int64_t bytes(MemoryTag tag) const {
    int64_t sum = 0;
    for (const auto& slab : all) sum += slab->tag == tag ? slab->size : 0;
    return sum;
  }

  // A slab's place for `bytes`; a new slab is as large as those before it together, so that they stay few.
  std::pair<std::shared_ptr<Slab>, int64_t> take(int64_t bytes, MemoryTag tag) {
    for (const auto& slab : all)
      if (slab->tag == tag)
        if (const auto block = slab->blocks.take(bytes, slab->size)) return {slab, block->offset};
    const int64_t size = std::max({device::round_up(bytes, kSmallestSlab), this->bytes(tag), kSmallestSlab});
    all.push_back(std::make_shared<Slab>(size, tag, on));
    return {all.back(), all.back()->blocks.take(bytes, size)->offset};
  }
};

Arena::Arena(Device device, std::optional<MemoryTag> region)
    : slabs_(std::make_shared<Slabs>(device, region)) {}
Arena::~Arena() = default;

Arena::Scope::Scope(Arena& arena) : before_(std::exchange(current, &arena)) {}
Arena::Scope::~Scope() { current = before_; }

int64_t Arena::bytes() const {
  const std::lock_guard lock(slabs_->mutex);
  int64_t sum = 0;
  for (const auto& slab : slabs_->all) sum += slab->size;
  return sum;
}

std::shared_ptr<std::byte> Arena::take(int64_t bytes, MemoryTag tag, Device device) {
  const bool brief =
      tag == MemoryTag::kActivations || tag == MemoryTag::kWorkspace || tag == MemoryTag::kGradients;
  if (current == nullptr || !brief || current->slabs_->on != device) return nullptr;
  const std::shared_ptr<Slabs> slabs = current->slabs_;
  const std::lock_guard lock(slabs->mutex);
  const auto [slab, offset] = slabs->take(bytes, slabs->region.value_or(tag));
  // The deleter keeps both: the mutex, and the memory after the arena is gone.
  return {slab->memory + offset, [slabs, slab = slab, offset = offset](std::byte*) {
            const std::lock_guard lock(slabs->mutex);
            slab->blocks.give(offset);
          }};
}

}  // namespace temper
