#include "primitives/collectives.h"

#include <gtest/gtest.h>

#include <mutex>

#include "collectives/launch.h"

namespace temper::primitives {
namespace {

using collectives::Group;
using Numbers = std::vector<float>;

Numbers numbers_in(const Tensor& tensor) {
  const Tensor compact = tensor.contiguous();
  return {compact.values<float>().begin(), compact.values<float>().end()};
}

Tensor column_of(std::initializer_list<float> values) {
  const Numbers all(values);
  return Tensor::from(std::span<const float>(all), {static_cast<int64_t>(all.size()), 1});
}

// What each rank gets forward, and what its x gets of the gradient `seed` that it gives.
struct Passed {
  Numbers y, gradient;
};
std::vector<Passed> pass(int ranks, const std::function<Tensor(int rank)>& x,
                         const std::function<Tensor(int rank)>& seed,
                         const std::function<Var(Tape&, const Var&, Group&)>& f) {
  std::vector<Passed> all(static_cast<size_t>(ranks));
  std::mutex mutex;
  collectives::launch("threads", {.ranks = ranks}, [&](Group& group) {
    Tape tape;
    const Var in = tape.variable(x(group.rank()));
    const Var y = f(tape, in, group);
    tape.backward(y, seed(group.rank()));
    const std::lock_guard lock(mutex);
    all[static_cast<size_t>(group.rank())] = {numbers_in(y.value), numbers_in(in.slot->take())};
  });
  return all;
}

// Five rows on two ranks: the second has two, and one of padding.
TEST(BetweenRanks, RowsAreGatheredAndTheirGradientsSummed) {
  const auto found = pass(
      2,
      [](int rank) {
        return rank == 0 ? column_of({1, 2, 3}) : column_of({4, 5, 99});
      },
      [](int rank) {
        return rank == 0 ? column_of({1, 1, 1, 1, 1}) : column_of({10, 20, 30, 40, 50});
      },
      [](Tape& tape, const Var& x, Group& group) { return gather_rows_of_ranks(tape, x, group, 5); });
  for (const Passed& course : found) EXPECT_EQ(course.y, (Numbers{1, 2, 3, 4, 5}));
  EXPECT_EQ(found[0].gradient, (Numbers{11, 21, 31}));
  EXPECT_EQ(found[1].gradient, (Numbers{41, 51, 0}));
}

TEST(BetweenRanks, SumsAreScatteredAndTheirGradientsGathered) {
  const auto found = pass(
      2,
      [](int rank) {
        return rank == 0 ? column_of({1, 2, 3, 4, 5}) : column_of({10, 20, 30, 40, 50});
      },
      [](int rank) {
        return rank == 0 ? column_of({1, 2, 3}) : column_of({4, 5, 7});
      },
      [](Tape& tape, const Var& x, Group& group) { return scatter_sum_of_ranks(tape, x, group); });
  EXPECT_EQ(found[0].y, (Numbers{11, 22, 33}));
  EXPECT_EQ(found[1].y, (Numbers{44, 55, 0}));
  for (const Passed& course : found) EXPECT_EQ(course.gradient, (Numbers{1, 2, 3, 4, 5}));
}

TEST(BetweenRanks, WhatAllReadHasTheSumOfTheirGradients) {
  const auto of_rank = [](int rank) { return column_of({static_cast<float>(rank + 1)}); };
  const auto read = pass(
      3, [](int) { return column_of({7}); }, of_rank,
      [](Tape& tape, const Var& x, Group& group) { return read_by_ranks(tape, x, group); });
  const auto sum = pass(
      3, of_rank, [](int) { return column_of({5}); },
      [](Tape& tape, const Var& x, Group& group) { return sum_of_ranks(tape, x, group); });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(read[static_cast<size_t>(rank)].y, Numbers{7});
    EXPECT_EQ(read[static_cast<size_t>(rank)].gradient, Numbers{6});
    EXPECT_EQ(sum[static_cast<size_t>(rank)].y, Numbers{6});
    EXPECT_EQ(sum[static_cast<size_t>(rank)].gradient, Numbers{5});
  }
}

}  // namespace
}  // namespace temper::primitives
