#include "weights/weight_table.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"

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
}

TEST(WeightTable, AnAxisIsDividedInOneWay) {
  WeightTable table;
  const auto error = [&](const char* name, const WeightAxis& axis) {
    const auto add = [&] {
      table.add({.name = name, .shape = {256}, .axes = {axis}, .sources = {{name, 256}}});
    };
    return error_of(add, ErrorKind::kDefect);
  };
  EXPECT_EQ(error("q", WeightAxis::divided("heads", 64)), "");
  EXPECT_EQ(error("k", WeightAxis::divided("heads", 64)), "");
  expect_has(error("v", WeightAxis::divided("heads", 128)), "v divides axis heads as others do not");
  expect_has(error("w", "heads"), "w divides axis heads as others do not");
  expect_has(error("x", WeightAxis::of_experts("heads", 64)), "x divides axis heads as others do not");
}

}  // namespace
}  // namespace temper
