#pragma once
#include "tensor/tensor.h"

namespace temper::collectives {

// The memory of a group into which a GPU receives what other ranks send of numbers that it adds up itself
// (nccl/narrow_sums.h). Taken with the first such sum, kept as long as the group's network; plans of memory
// take it alike (local/).
class ReceivedNumbers {
 public:
  static constexpr int64_t kBytes = int64_t{64} << 20;
  // NCCL rounds sums of these after each addition.
  static bool are_of(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

  // Of a region that nothing pauses and no Arena serves: it outlives the pass in which the first sum is.
  void take(Device gpu) {
    if (!memory_.defined()) memory_ = Tensor::empty({kBytes}, DType::kU8, MemoryTag::kData, gpu);
  }
  void give_back() { memory_ = {}; }
  std::byte* begin() const { return static_cast<std::byte*>(memory_.raw()); }

 private:
  Tensor memory_;
};

}  // namespace temper::collectives
