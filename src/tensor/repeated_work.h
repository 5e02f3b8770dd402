#pragma once
#include <functional>
#include <optional>

#include "device/graph.h"
#include "tensor/arena.h"

namespace temper {

// Work on tensors that is done again and again, the same each time but for what the tensors hold. On a device
// that captures graphs the first run is a plain one, in which kernels are loaded and products planned; the
// second is captured, and from then on one launch is all that a run costs the host. Elsewhere, and where
// `captured` is false, each run calls `work`. What `work` makes on its way lies in an arena of its own; what
// it keeps from run to run it must own.
class RepeatedWork {
 public:
  RepeatedWork(Device device, bool captured, std::function<void()> work);
  void run();

 private:
  Device device_;
  std::function<void()> work_;
  std::optional<Arena> arena_;  // only where work is captured; outlives the graph
  std::unique_ptr<Graph> graph_;
  bool prepared_ = false;
};

}  // namespace temper
