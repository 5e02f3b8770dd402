#include "tensor/arena.h"

#include <map>
#include <mutex>
#include <utility>

namespace temper {
namespace {

thread_local Arena* current = nullptr;

}  // namespace

struct Arena::Blocks {
  explicit Blocks(Device on) : device(on) {}

  Device device;
  std::mutex mutex;
  std::multimap<std::pair<MemoryTag, int64_t>, std::byte*> free;  // by tag and size
  bool closed = false;

  // The smallest that fits and is not much too large; 64 bytes, as the pool rounds.
  std::pair<std::byte*, int64_t> take(int64_t bytes, MemoryTag tag) {
    const std::lock_guard lock(mutex);
    const auto found = free.lower_bound({tag, bytes});
    if (found != free.end() && found->first.first == tag && found->first.second <= 2 * bytes + 64) {
      const std::pair block{found->second, found->first.second};
      free.erase(found);
      return block;
    }
    return {static_cast<std::byte*>(pool(device).allocate(bytes, tag)), bytes};
  }

  void give(std::byte* memory, int64_t bytes, MemoryTag tag) {
    const std::lock_guard lock(mutex);
    if (closed)
      pool(device).release(memory, tag);
    else
      free.emplace(std::pair{tag, bytes}, memory);
  }

  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    for (const auto& [key, memory] : free) pool(device).release(memory, key.first);
    free.clear();
  }
};

Arena::Arena(Device device) : blocks_(std::make_shared<Blocks>(device)) {}
Arena::~Arena() { blocks_->close(); }

Arena::Scope::Scope(Arena& arena) : before_(std::exchange(current, &arena)) {}
Arena::Scope::~Scope() { current = before_; }

std::shared_ptr<std::byte> Arena::take(int64_t bytes, MemoryTag tag, Device device) {
  const bool brief = tag == MemoryTag::kActivations || tag == MemoryTag::kWorkspace;
  if (current == nullptr || !brief || current->blocks_->device != device) return nullptr;
  const std::shared_ptr<Blocks> blocks = current->blocks_;
  const auto [memory, size] = blocks->take(bytes, tag);
  return {memory, [blocks, size = size, tag](std::byte* block) { blocks->give(block, size, tag); }};
}

}  // namespace temper
