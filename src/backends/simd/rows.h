#pragma once
#include <algorithm>

#include "tensor/tensor.h"

namespace temper::backends {

// Walks the rows (last dimension) of a tensor whose outer dimensions may have any stride.
class RowCursor {
 public:
  RowCursor(const Tensor& tensor, int64_t row) : shape_(tensor.shape()), strides_(tensor.strides()) {
    for (int dim = shape_.ndim() - 2; dim >= 0; --dim) {
      index_[dim] = row % shape_[dim];
      row /= shape_[dim];
      offset_ += index_[dim] * strides_[dim];
    }
  }

  int64_t offset() const { return offset_; }  // in elements

  void next() {
    for (int dim = shape_.ndim() - 2; dim >= 0; --dim) {
      offset_ += strides_[dim];
      if (++index_[dim] < shape_[dim]) return;
      offset_ -= shape_[dim] * strides_[dim];
      index_[dim] = 0;
    }
  }

 private:
  Shape shape_, strides_;
  int64_t index_[Shape::kMaxDims] = {};
  int64_t offset_ = 0;
};

// Pieces of about 32K elements: large enough to hide the cost of a task.
inline int64_t rows_per_task(int64_t row_size) {
  return std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, row_size));
}

}  // namespace temper::backends
