#pragma once
#include <functional>
#include <memory>

#include "base/error.h"
#include "device/device.h"

namespace temper {

// Work of a device that was captured once and runs again as it was: the same kernels on the same addresses.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void run() = 0;  // asks the device for the work, in the order of what else it is asked for
};

// The work that was to be captured asked for something that no graph can hold. None of it has run.
class CannotCapture : public Error {
 public:
  explicit CannotCapture(const std::string& message) : Error(message, ErrorKind::kDefect) {}
};

// Captures what `work` launches on the device, without running it. Meanwhile no other thread may launch work
// on that device, and `work` may neither wait for it nor copy from or to the CPU: that ends the capture with
// CannotCapture. Memory that the work touches must stay with its owner as long as the graph (tensor/arena.h).
// Null where the device captures nothing, as the CPU.
std::unique_ptr<Graph> capture(Device device, const std::function<void()>& work);

}  // namespace temper
