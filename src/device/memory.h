#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "device/device.h"

namespace temper {

// What memory is for. Every tag has a region of its own in each device's pool, except gradients: they share
// that of activations, into whose memory they move while backward frees it.
enum class MemoryTag : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,
  kKvCache,
  kGraphs,  // what captured passes of rollouts write on their way
  kWorkspace,
  kData
};
inline constexpr int kNumMemoryTags = 8;
std::string_view to_string(MemoryTag tag);

struct RegionUsage {
  int64_t live = 0;  // bytes in use
  int64_t peak = 0;  // the most that was in use at once
  int64_t held = 0;  // bytes taken from the device, live or kept for reuse; of gradients: with activations
  int64_t allocations = 0;  // calls so far
  int64_t backup = 0;       // bytes of the CPU's memory that keep what is in it while it is paused, or wait
                            // for the next time
  bool paused = false;
};
using MemoryUsage = std::array<RegionUsage, kNumMemoryTags>;

enum class PauseMode { kDrop, kKeep };  // contents are lost, or moved to host memory

// Hands out a device's memory from tagged regions. A region can be paused: its physical memory returns to the
// device while its addresses stay reserved; resume() brings it back at the same addresses. Calls in the wrong
// state throw. Thread-safe.
class Pool {
 public:
  virtual ~Pool() = default;
  // 64-byte aligned, uninitialized. Throws kResources with the table by tag when the limit is reached.
  virtual void* allocate(int64_t bytes, MemoryTag tag) = 0;
  virtual void release(void* memory, MemoryTag tag) noexcept = 0;
  // Work on another stream than the one that was current at allocate() uses the block (device/cuda/stream.h):
  // called with that stream current, before release(). The memory then serves others after that work, too.
  virtual void used(void* memory, MemoryTag tag) = 0;
  virtual void pause(MemoryTag tag, PauseMode mode) = 0;
  virtual void resume(MemoryTag tag) = 0;
  virtual MemoryUsage usage() const = 0;
  virtual void reset_peak() = 0;
  virtual int64_t peak_live() const = 0;      // the most bytes that were in use at once, in all regions
  virtual int64_t peak_held() const = 0;      // the most bytes that were taken from the device at once
  virtual void set_limit(int64_t bytes) = 0;  // of all regions together
  virtual int64_t limit() const = 0;
};

Pool& pool(Device device = {});  // throws when no room provides that device
using PoolFactory = Pool& (*)(int index);
void register_pool(DeviceType type, PoolFactory factory);

// The most that a run is expected to have in use: of each tag, and of all together, whose peaks are at
// different times.
struct MemoryPlan {
  std::array<int64_t, kNumMemoryTags> peaks{};
  int64_t total = 0;
  int64_t of(MemoryTag tag) const { return peaks[static_cast<size_t>(tag)]; }
};

// The table by tag, with planned and actual bytes where a plan is given. `peak`: of all tags together.
std::string memory_table(const MemoryUsage& usage, int64_t peak, const MemoryPlan* planned = nullptr);

int64_t peak_resident_bytes();  // of this process, as the system counts it
int64_t current_resident_bytes();
int64_t available_host_bytes();  // free for new allocations, honouring control-group limits

}  // namespace temper
