#include "layers/paged_states.h"

#include <gtest/gtest.h>

namespace temper::layers {
namespace {

TEST(PagedStates, RowsAreKeptAndNeverFewer) {
  const Tensor held = Tensor::from(std::vector<int32_t>{1, 2, 3, 4, 5, 6}).reshape({3, 2});
  const Tensor more = with_more_rows(held, 5);
  EXPECT_EQ(more.shape(), Shape({5, 2}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(more.data<int32_t>()[i], i + 1);
  // As after a growth for which only some layers had memory.
  EXPECT_EQ(with_more_rows(more, 4).raw(), more.raw());
}

}  // namespace
}  // namespace temper::layers
