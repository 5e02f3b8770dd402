#include "parallel/pipeline/layer_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "tests/support/errors.h"

namespace temper::parallel {
namespace {

void expect_refused(const std::function<void()>& act, const std::string& error) {
  EXPECT_EQ(error_of(act), error);
}

std::vector<double> costs_of(const LayerCosts& costs, const std::vector<LayerRange>& parts) {
  std::vector<double> sums;
  for (const LayerRange& part : parts) {
    double sum = 0;
    for (int layer = part.first; layer < part.last; ++layer) sum += costs.layers[static_cast<size_t>(layer)];
    sums.push_back(sum);
  }
  sums.front() += costs.embedding;
  sums.back() += costs.head;
  return sums;
}

double largest(const LayerCosts& costs, const std::vector<LayerRange>& parts) {
  return std::ranges::max(costs_of(costs, parts));
}

double squares(const LayerCosts& costs, const std::vector<LayerRange>& parts) {
  double sum = 0;
  for (const double cost : costs_of(costs, parts)) sum += cost * cost;
  return sum;
}

// Whole numbers, whose sums are exact.
LayerCosts random_costs(int layers, std::mt19937& random) {
  LayerCosts costs;
  for (int i = 0; i < layers; ++i) costs.layers.push_back(static_cast<double>(1 + random() % 9));
  costs.embedding = static_cast<double>(random() % 20);
  costs.head = static_cast<double>(random() % 20);
  return costs;
}

// Whether parts of at most this cost suffice: each takes as many layers as it may, from the first one on.
bool suffices(const LayerCosts& costs, int parts, double bound) {
  const auto layers = static_cast<int>(costs.layers.size());
  int layer = 0;
  for (int part = 0; part < parts; ++part) {
    const int least = part == parts - 1 ? layers : layer + 1, most = layers - (parts - 1 - part);
    double sum = (part == 0 ? costs.embedding : 0) + (part == parts - 1 ? costs.head : 0);
    int end = layer;
    while (end < most && (end < least || sum + costs.layers[static_cast<size_t>(end)] <= bound))
      sum += costs.layers[static_cast<size_t>(end++)];
    if (sum > bound) return false;
    layer = end;
  }
  return layer == layers;
}

// Of any number of layers, stages and chunks: each layer once, in order, and no smaller largest cost exists.
TEST(LayerParts, AreAllLayersInOrderWithTheSmallestLargestCost) {
  std::mt19937 random(7);
  for (int layers = 1; layers <= 100; ++layers) {
    const LayerCosts costs = random_costs(layers, random);
    for (int stages = 1; stages <= 16; ++stages)
      for (int chunks = 1; chunks <= 4; ++chunks) {
        const int parts = stages * chunks;
        if (parts > layers) {
          EXPECT_THROW(divide_layers(costs, stages, chunks), Error);
          continue;
        }
        const std::vector<LayerRange> found = divide_layers(costs, stages, chunks);
        ASSERT_EQ(std::ssize(found), parts);
        int next = 0;
        for (const LayerRange& part : found) {
          ASSERT_EQ(part.first, next);
          ASSERT_GT(part.count(), 0);
          next = part.last;
        }
        ASSERT_EQ(next, layers);
        const double most = largest(costs, found);
        ASSERT_TRUE(suffices(costs, parts, most));
        ASSERT_FALSE(suffices(costs, parts, most - 1)) << layers << " layers in " << parts;
      }
  }
}

// Against all divisions there are.
TEST(LayerParts, AreTheMostEqualOnes) {
  std::mt19937 random(11);
  for (int layers = 1; layers <= 9; ++layers)
    for (int parts = 1; parts <= layers; ++parts)
      for (int round = 0; round < 5; ++round) {
        const LayerCosts costs = random_costs(layers, random);
        std::pair<double, double> least{1e9, 1e9};
        std::vector<LayerRange> division;
        const std::function<void(int)> divide = [&](int first) {
          if (std::ssize(division) + 1 == parts) {
            division.push_back({first, layers});
            least = std::min(least, {largest(costs, division), squares(costs, division)});
            division.pop_back();
            return;
          }
          for (int last = first + 1; last < layers; ++last) {
            division.push_back({first, last});
            divide(last);
            division.pop_back();
          }
        };
        divide(0);
        const auto found = divide_layers(costs, parts, 1);
        EXPECT_EQ(std::pair(largest(costs, found), squares(costs, found)), least);
      }
}

TEST(LayerParts, OfEqualLayersDifferByOne) {
  const auto counts = [](int layers, double embedding, double head, int stages, int chunks = 1) {
    std::vector<int> counts;
    for (const LayerRange& part : divide_layers(
             {std::vector<double>(static_cast<size_t>(layers), 1.0), embedding, head}, stages, chunks))
      counts.push_back(part.count());
    return counts;
  };
  EXPECT_EQ(counts(30, 0, 0, 4), (std::vector{8, 8, 7, 7}));
  EXPECT_EQ(counts(10, 0, 0, 3), (std::vector{4, 3, 3}));
  EXPECT_EQ(counts(32, 0, 0, 2, 2), (std::vector{8, 8, 8, 8}));
  EXPECT_EQ(counts(30, 1, 1, 4), (std::vector{7, 8, 8, 7}));
  EXPECT_EQ(counts(12, 0, 3.5, 4), (std::vector{4, 4, 3, 1}));
}

TEST(LayerParts, MorePartsThanLayersAreAnErrorWithWhatFits) {
  const LayerCosts twelve{std::vector<double>(12, 1.0)};
  expect_refused(
      [&] { divide_layers(twelve, 8, 2); },
      "[pipeline] 8 stages of 2 chunks need 16 layers, the model has 12; expected at most 6 stages of 2 "
      "chunks, or 8 stages of at most 1 chunks");
  expect_refused(
      [&] { divide_layers(twelve, 16, 1); },
      "[pipeline] 16 stages of 1 chunks need 16 layers, the model has 12; expected at most 12 stages "
      "of 1 chunks");
  expect_refused(
      [&] {
        divide_layers({{1, 1}}, 4, 4);
      },
      "[pipeline] 4 stages of 4 chunks need 16 layers, the model has 2; expected at most 2 stages of 1 "
      "chunk");
  expect_refused([&] { divide_layers(twelve, 0, 1); },
                 "[pipeline] 0 stages of 1 chunks; expected at least 1 of each");
}

}  // namespace
}  // namespace temper::parallel
