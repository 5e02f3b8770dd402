#pragma once
#include <memory>
#include <optional>

#include "device/memory.h"

namespace temper {

// Memory for work that runs again on the same addresses. While a Scope lives, activations, workspace and
// gradients that its thread makes on the arena's device are blocks of the arena. A block whose tensor is gone
// serves the scope's next tensors only: memory goes back to the pool with the arena, or with the
// last tensor on it, whichever is later. So a graph captured in a scope may run as long as the arena is
// there: what it writes belongs to no one else, whatever the pool hands out meanwhile.
class Arena {
 public:
  // `region`: that its memory is of; without one, the regions of what is made.
  explicit Arena(Device device, std::optional<MemoryTag> region = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  class Scope {
   public:
    explicit Scope(Arena& arena);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena* before_;
  };

  int64_t bytes() const;  // taken from the pool

  // A block of the arena in whose scope this thread is; null where there is none for such memory.
  static std::shared_ptr<std::byte> take(int64_t bytes, MemoryTag tag, Device device);

 private:
  struct Slabs;
  std::shared_ptr<Slabs> slabs_;
};

}  // namespace temper
