#include "collectives/call.h"

#include <gtest/gtest.h>
#include "tests/support/errors.h"

namespace temper::collectives {
namespace {

const Call kCall{
    .name = "tokens", .collective = "all_to_all", .number = 7, .shape = {5, 2}, .dtype = DType::kF32};

TEST(Call, SaysWhatARankAsksFor) {
  EXPECT_EQ(to_string(kCall), "collective 7, all_to_all of 'tokens', float32 [5, 2]");
  EXPECT_EQ(to_string({.name = "seed", .collective = "broadcast_object", .number = 1, .root = 2}),
            "collective 1, broadcast_object of 'seed' from rank 2");
  Call other = kCall;
  EXPECT_TRUE(same(kCall, other));
  other.number = 8;
  EXPECT_FALSE(same(kCall, other));
}

TEST(RowExchange, HasBytesForEachRankAndACallOfOneRow) {
  Call call = kCall;
  const Tensor rows = Tensor::zeros({5, 2}, DType::kF32);
  const RowExchange exchange =
      row_exchange(call, rows, std::vector<int64_t>{4, 0, 1}, std::vector<int64_t>{1, 2, 0});
  EXPECT_EQ(exchange.row_bytes, 8);
  EXPECT_EQ(exchange.send, (std::vector<int64_t>{32, 0, 8}));
  EXPECT_EQ(exchange.receive, (std::vector<int64_t>{8, 16, 0}));
  EXPECT_EQ(exchange.received.shape(), Shape({3, 2}));
  EXPECT_EQ(call.shape, Shape({1, 2}));  // ranks that bring other numbers of rows ask for the same
}

TEST(RowExchange, RefusesOtherRowsThanThereAre) {
  Call call = kCall;
  const Tensor rows = Tensor::zeros({5, 2}, DType::kF32);
  EXPECT_THROW(row_exchange(call, rows, std::vector<int64_t>{4, 0, 0}, std::vector<int64_t>{1, 2, 0}), Error);
  EXPECT_EQ(
      error_of([] { fail_rows(kCall, 2, 3, 4); }, ErrorKind::kDefect),
      "[collectives] collective 7, all_to_all of 'tokens', float32 [5, 2]: rank 2 sends 3 rows, expected 4");
}

}  // namespace
}  // namespace temper::collectives
