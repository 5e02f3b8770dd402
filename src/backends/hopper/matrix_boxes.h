#pragma once
#include <cstdint>

#include "backends/hopper/tensor_maps.h"

// Matrices as the kernels copy them.
namespace temper::backends {

inline int64_t parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Whether it begins where copies can, and its rows are whole numbers of the bytes apart that they can step.
inline bool can_be_copied(const Tensor& tensor) {
  constexpr int64_t kCopyBytes = 16;
  return reinterpret_cast<uintptr_t>(tensor.raw()) % kCopyBytes == 0 &&
         tensor.stride(0) * static_cast<int64_t>(size_of(tensor.dtype())) % kCopyBytes == 0;
}

// Whether a box may begin at this column of a bfloat16 matrix: a copy from between two multiples of 16 bytes
// is an illegal instruction.
inline bool may_begin_at(int64_t column) { return column % 8 == 0; }

// Swizzled boxes of [rows, 64] of a bfloat16 matrix.
inline CUtensorMap boxes_of(const Tensor& matrix, int rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.dim(1)), static_cast<cuuint64_t>(matrix.dim(0))};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride(0)) * sizeof(uint16_t)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(rows)};
  return tensor_map<2>(matrix, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, sizes, strides, box,
                       CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace temper::backends
