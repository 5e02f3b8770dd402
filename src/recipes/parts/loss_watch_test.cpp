#include "recipes/parts/loss_watch.h"

#include <gtest/gtest.h>

namespace temper::recipes {
namespace {

std::vector<std::string> said_of(const std::vector<std::pair<double, double>>& losses_and_norms) {
  LossWatch watch;
  std::vector<std::string> all;
  int64_t step = 0;
  for (const auto& [loss, norm] : losses_and_norms)
    for (const std::string& warning : watch.after(++step, loss, norm)) all.push_back(warning);
  return all;
}

TEST(LossWatch, SaysOnceThatTheLossExploded) {
  const auto said = said_of({{5.77, 1}, {699671, 2}, {800000, 3}, {5.8, 1}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(
      said[0].find("the loss of step 2 is 6.997e+05, and the first one was 5.77: training has diverged"), 0u)
      << said[0];
  EXPECT_TRUE(said_of({{5.77, 1}, {12, 1}, {40, 1}}).empty());
  EXPECT_TRUE(said_of({{0.001, 1}, {0.5, 1}, {2, 1}}).empty());
}

TEST(LossWatch, SaysOnceThatThereAreNoGradients) {
  const auto said = said_of({{5.77, 0}, {5.77, 0}, {5.77, 0}, {5.77, 0}, {5.77, 0}, {5.77, 0}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].find("the gradients of 3 updates in a row, up to step 3, are 0"), 0u) << said[0];
  EXPECT_TRUE(said_of({{5, 0}, {5, 0}, {5, 0.1}, {5, 0}, {5, 0}}).empty());
}

}  // namespace
}  // namespace temper::recipes
