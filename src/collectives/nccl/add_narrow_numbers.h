#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "tensor/dtype.h"

namespace temper::collectives {

// sums[i] = Σ from rank r's numbers, in the order of the ranks, in float32 and rounded once: of rank `own`
// they are at `mine`, of another one at `received` + its number · `slot` bytes. bfloat16 or float16.
struct NarrowNumbers {
  DType dtype = DType::kBF16;
  const std::byte* mine = nullptr;
  const std::byte* received = nullptr;
  int64_t slot = 0, count = 0;
  int own = 0, ranks = 1;
};
void add_narrow_numbers(const NarrowNumbers& numbers, std::byte* sums, Device gpu, cudaStream_t on);

}  // namespace temper::collectives
