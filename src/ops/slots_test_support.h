#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "ops/slot_rows.h"
#include "tests/support/op_testing.h"

namespace temper::op_testing {

// Rows that lie scattered among others, which no kernel may read or write.
class InSlots {
 public:
  explicit InSlots(const Tensor& rows) {
    Shape shape = rows.shape();
    shape[0] = 2 * rows.dim(0) + 1;
    all = tensor_of(Doubles(static_cast<size_t>(shape.numel()), std::nan("")), shape, rows.dtype())
              .on(rows.device());
    std::vector<int32_t> own;
    for (int64_t i = 0; i < rows.dim(0); ++i) {
      own.push_back(static_cast<int32_t>(i == 0 ? shape[0] - 1 : 2 * i - 1));
      all.narrow(0, own.back(), 1).copy_from(rows.narrow(0, i, 1));
    }
    slots = ints(own).on(rows.device());
  }

  // Once the op has run.
  Tensor rows() const {
    for (int64_t row = 0; row < all.dim(0); ++row) {
      const std::span<const int32_t> own = slots_on_cpu().values<int32_t>();
      if (std::find(own.begin(), own.end(), row) != own.end()) continue;
      for (const double value : values_of(all.narrow(0, row, 1))) EXPECT_TRUE(std::isnan(value)) << row;
    }
    return ops::SlotRows(all, slots).rows();
  }

  Tensor all;    // [2 rows + 1, …], those of no slot NaN
  Tensor slots;  // [rows] int32

 private:
  const Tensor& slots_on_cpu() const {
    if (!seen_.defined()) seen_ = slots.on({});
    return seen_;
  }
  mutable Tensor seen_;
};

}  // namespace temper::op_testing
