#include "weights/weight_table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace temper {
namespace {

TEST(WeightTable, FindsThePlaceOfAFusedSource) {
  WeightTable table;
  table.add({"qkv", {8, 4}, {"heads*head_dim", "hidden"}, {{"q", 4}, {"k", 2}, {"v", 2}}});
  const auto place = table.find_source("v");
  EXPECT_EQ(place.spec->name, "qkv");
  EXPECT_EQ(place.row, 6);
  EXPECT_EQ(place.rows, 2);
  EXPECT_EQ(table.find_source("z").spec, nullptr);
}

TEST(WeightTable, RefusesContradictions) {
  WeightTable table;
  table.add({"a", {2}, {"hidden"}, {{"x", 2}}});
  EXPECT_THROW(table.add({"b", {2}, {"hidden"}, {{"x", 2}}}), Error);
  EXPECT_THROW(table.add({"a", {2}, {"hidden"}, {{"y", 2}}}), Error);
  EXPECT_THROW(table.add({"c", {3}, {"hidden"}, {{"z", 2}}}), Error);
  table.keep_together("heads", 64);
  table.keep_together("heads", 64);
  EXPECT_THROW(table.keep_together("heads", 128), Error);
}

}  // namespace
}  // namespace temper
