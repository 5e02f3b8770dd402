#pragma once
#include <memory>

#include "device/transfer.h"
#include "tensor/tensor.h"

namespace temper {

// Starts copying a contiguous tensor of any shape to the host; Reading waits for it.
inline std::shared_ptr<Reading> start_reading(const Tensor& numbers) {
  return start_reading(numbers.raw(), numbers.device(), numbers.bytes());
}

}  // namespace temper
