#pragma once
#include <functional>
#include <memory>

#include "device/graph.h"
#include "tensor/arena.h"
#include "tensor/host_inputs.h"

namespace temper {

// Work on tensors that is done again and again, the same each time except for the values of the tensors. On a
// device that captures graphs the first run is a plain one, in which kernels are loaded and products planned;
// the second is captured, and from then on one launch is all that a run costs the host. Elsewhere, and where
// `captured` is false, each run calls `work`. What `work` makes on its way lies in an arena; what it keeps
// from run to run it must own. What it takes from the CPU it takes as tensor/host_inputs.h says; a run for
// which something taken for granted no longer holds is a first one again.
class RepeatedWork {
 public:
  RepeatedWork(Device device, bool captured, std::function<void()> work);
  // In an arena that several share: they run one after the other.
  RepeatedWork(Device device, std::shared_ptr<Arena> arena, std::function<void()> work);
  void run();
  bool prepared() const { return prepared_ && inputs_.hold(); }  // a run would not be a first one
  bool captured() const { return graph_ != nullptr; }

 private:
  void capture_work();

  Device device_;
  std::function<void()> work_;
  std::shared_ptr<Arena> arena_;  // only where work is captured; outlives the graph
  HostInputs inputs_;
  std::unique_ptr<Graph> graph_;
  bool prepared_ = false;
};

}  // namespace temper
