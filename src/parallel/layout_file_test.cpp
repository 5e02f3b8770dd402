#include "parallel/layout_file.h"

#include <gtest/gtest.h>

namespace temper::parallel {
namespace {

// The mesh by its axes, each with what belongs to it, and of every parameter the axes whose ranks have the
// same part, or other rows.
TEST(LayoutFile, NamesTheAxesOfTheMesh) {
  WeightTable table;
  table.add({.name = "norm", .shape = {8}, .axes = {"hidden"}, .sources = {{"n", 8}}});
  table.add({.name = "up",
             .shape = {16, 8},
             .axes = {WeightAxis::divided("intermediate"), "hidden"},
             .sources = {{"u", 16}}});
  table.add({.name = "experts",
             .shape = {16, 8},
             .axes = {WeightAxis::of_experts("experts*width", 1), "hidden"},
             .sources = {{"a", 8}, {"b", 8}},
             .experts = 2});
  const Mesh mesh{.replicate = 2, .shard = 2, .tensor = 2, .expert = 2, .shard_level = 2};
  const Json layout = layout_json(layers::ParameterStore(table, DType::kF32, {}, {}, mesh, 5));
  EXPECT_EQ(layout.at("ranks"), Json(16));
  EXPECT_EQ(layout.at("mesh").dump(),
            R"({"replicate": 2, "shard": 2, "shard_level": 2, "context": 1, "tensor": 2, )"
            R"("sequence": true, "expert": 2})");
  std::vector<std::string> axes, summed;
  for (const Json& parameter : layout.at("parameters").as_array()) {
    axes.push_back(parameter.at("axes").dump());
    summed.push_back(parameter.at("gradient summed over").as_string());
  }
  EXPECT_EQ(axes, (std::vector<std::string>{R"(["hidden"])", R"(["intermediate", "hidden"])",
                                            R"(["experts*width", "hidden"])"}));
  EXPECT_EQ(summed, (std::vector<std::string>{"replicate, shard, tensor, expert", "replicate, shard, expert",
                                              "replicate, shard"}));
}

}  // namespace
}  // namespace temper::parallel
