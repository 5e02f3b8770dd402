#include "parallel/layout_file.h"

#include <gtest/gtest.h>

#include "collectives/local/local.h"
#include "models/model.h"
#include "parallel/mesh_groups.h"
#include "parallel/model_parts.h"
#include "tests/support/tiny_model.h"

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

// Of a pipeline, which layers and ranks each stage has, and which parameters two of them have.
TEST(LayoutFile, NamesTheStages) {
  Json config = tiny_config("qwen3");
  config.set("num_hidden_layers", 5);
  config.set("tie_word_embeddings", true);
  const std::unique_ptr<collectives::Group> all = collectives::planned_group(4, 2);
  const MeshGroups groups(*all, {.tensor = 2});
  const auto layout_of = [&](int chunks) {
    models::BuildOptions build;
    build.counted = true;
    build.ranks = with_parts(groups.model(), models::configure(config, "tiny"), chunks);
    const auto model = models::build_model(config, "tiny", build);
    return layout_json(model->decoder.parameters(), model->decoder.ranks().stages);
  };
  const Json layout = layout_of(2);
  EXPECT_EQ(layout.at("ranks"), Json(4));
  EXPECT_EQ(layout.at("stages").dump(),
            R"([{"ranks": [0, 2], "layers": [[0, 2], [3, 1]], "embedding": true, "head": false}, )"
            R"({"ranks": [2, 2], "layers": [[2, 1], [4, 1]], "embedding": false, "head": true}])");
  std::map<std::string, int64_t> first_ranks, copies;
  for (const Json& parameter : layout.at("parameters").as_array()) {
    const std::string& name = parameter.at("name").as_string();
    first_ranks[name] = parameter.at("parts").as_array().front().at("rank").as_int();
    if (const Json* copy = parameter.find("stage that has a copy")) copies[name] = copy->as_int();
  }
  EXPECT_EQ(first_ranks.at("layers.1.mlp.down.weight"), 0);
  EXPECT_EQ(first_ranks.at("layers.2.mlp.down.weight"), 2);
  EXPECT_EQ(first_ranks.at("norm.weight"), 2);
  EXPECT_EQ(copies, (std::map<std::string, int64_t>{{"embedding.weight", 1}}));
  EXPECT_EQ(layout_of(1).at("stages").as_array().front().at("layers").dump(), "[[0, 3]]");
}

}  // namespace
}  // namespace temper::parallel
