#include "data/sources/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

std::vector<int64_t> epoch_of(RowOrder& order) {
  std::vector<int64_t> rows;
  for (const int64_t epoch = order.epoch(); order.epoch() == epoch;) rows.push_back(order.next());
  return rows;
}

std::vector<int64_t> count_sources(const std::vector<int64_t>& rows, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> counts(sizes.size());
  for (int64_t row : rows) {
    size_t source = 0;
    for (; row >= sizes[source]; ++source) row -= sizes[source];
    ++counts[source];
  }
  return counts;
}

TEST(Order, ConcatenatedSourcesAreOneSet) {
  RowOrder order({3, 40, 7}, {1, 1, 1}, {.seed = 4});
  EXPECT_EQ(order.epoch_rows(), 50);
  std::vector<int64_t> first = epoch_of(order), second = epoch_of(order);
  EXPECT_NE(first, second);
  for (auto* rows : {&first, &second}) {
    std::sort(rows->begin(), rows->end());
    ASSERT_EQ(rows->size(), 50u);
    for (size_t i = 0; i < rows->size(); ++i) EXPECT_EQ((*rows)[i], static_cast<int64_t>(i));
  }
  RowOrder plain({2, 3}, {1, 1}, {.shuffle = false});
  EXPECT_EQ(epoch_of(plain), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(epoch_of(plain), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(Order, WeightsHoldAtEveryMoment) {
  const std::vector<int64_t> sizes{1000, 500, 90};
  const std::vector<double> weights{5, 3, 0.5};
  RowOrder order(sizes, weights, {.seed = 1, .mixing = Mixing::kAllExhausted});
  std::vector<int64_t> rows;
  for (int64_t n = 1; n <= 1500 && order.epoch() == 0; ++n) {
    rows.push_back(order.next());
    const std::vector<int64_t> counts = count_sources(rows, sizes);
    for (size_t i = 0; i < sizes.size(); ++i)
      EXPECT_LE(std::abs(static_cast<double>(counts[i]) - weights[i] / 8.5 * static_cast<double>(n)), 1.0);
  }
}

TEST(Order, FirstExhaustedEndsWithTheFirstSourceThatDoes) {
  const std::vector<int64_t> sizes{10, 1000};
  RowOrder order(sizes, {1, 3}, {.seed = 9, .mixing = Mixing::kFirstExhausted});
  EXPECT_EQ(order.epoch_rows(), 40);
  std::vector<int64_t> seen;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int64_t> rows = epoch_of(order);
    const std::vector<int64_t> counts = count_sources(rows, sizes);
    EXPECT_EQ(counts[0], 10);
    EXPECT_NEAR(static_cast<double>(counts[1]), 30, 3);
    for (const int64_t row : rows)
      if (row >= 10) seen.push_back(row);
  }
  // The large source is sampled again in each epoch, so that all of it is seen in time.
  std::sort(seen.begin(), seen.end());
  EXPECT_GT(std::unique(seen.begin(), seen.end()) - seen.begin(), 70);
}

TEST(Order, AllExhaustedReadsEverySourceWhole) {
  const std::vector<int64_t> sizes{10, 60};
  RowOrder order(sizes, {1, 1}, {.seed = 9, .mixing = Mixing::kAllExhausted});
  EXPECT_EQ(order.epoch_rows(), 120);
  std::map<int64_t, int> times;
  for (const int64_t row : epoch_of(order)) ++times[row];
  ASSERT_EQ(times.size(), 70u);
  for (const auto& [row, count] : times) {
    EXPECT_GE(count, row < 10 ? 5 : 1) << row;
    EXPECT_LE(count, row < 10 ? 7 : 1) << row;
  }
}

TEST(Order, GoesOnFromAnyPlace) {
  for (const Mixing mixing : {Mixing::kConcatenate, Mixing::kFirstExhausted, Mixing::kAllExhausted}) {
    const OrderOptions options{.seed = 2, .mixing = mixing};
    RowOrder whole({7, 19}, {2, 1}, options), other({7, 19}, {2, 1}, options);
    for (int i = 0; i < 200; ++i) {
      other.restore(RowOrder::Place::from_json(Json::parse(whole.place().to_json().dump(), "place")));
      EXPECT_EQ(other.progress(other.place()), whole.progress(whole.place()));
      const int64_t row = whole.next();
      EXPECT_EQ(other.next(), row);
    }
  }
}

TEST(Order, RefusesABrokenPlace) {
  RowOrder order({5}, {1}, {});
  EXPECT_THROW(order.restore({0, 0, {}}), Error);
  EXPECT_THROW(order.restore({0, 0, {{0, 0, 5}}}), Error);
  for (const RowOrder::Place& place : {RowOrder::Place{0, 0, {{-1, 0, 2}}},
                                       {0, 0, {{0, -1, 2}}},
                                       {0, 0, {{0, 0, -1}}},
                                       {-1, 0, {{0, 0, 2}}},
                                       {0, -1, {{0, 0, 2}}}})
    EXPECT_EQ(error_of([&] { order.restore(place); }),
              "[data] the saved state is broken: its place in the rows is " + place.to_json().dump());
  for (const std::vector<double>& weights : {std::vector<double>{}, {1, 2}})
    EXPECT_NE(error_of([&] { RowOrder({5}, weights, {}); }, ErrorKind::kDefect)
                  .find("an order needs a weight for each source"),
              std::string::npos);
}

}  // namespace
}  // namespace temper::data
