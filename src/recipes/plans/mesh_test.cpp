#include "recipes/plans/mesh.h"

#include <gtest/gtest.h>

#include "models/model.h"
#include "recipes/plans/mesh_proposals.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

// Routers see tokens of their own where ranks divide them; a dense model may keep all of them everywhere.
TEST(Mesh, MixturesOnTensorRanksNeedSequenceParallelism) {
  const auto refusal = [](const char* type, const Mesh& mesh) {
    return error_of(
        [&] { check_mesh(mesh, models::configure(tiny_config(type), "config.json"), RunConfig()); });
  };
  EXPECT_EQ(
      refusal("qwen3_moe", {.tensor = 2, .sequence = false}),
      "[parallel.sequence] is false, but the routers of a mixture on several tensor ranks need it; leave it "
      "out");
  EXPECT_EQ(refusal("qwen3_moe", {.tensor = 2}), "");
  EXPECT_EQ(refusal("qwen3", {.context = 2}), "");
  EXPECT_EQ(refusal("qwen3", {.context = 3}), "");  // keys travel
  EXPECT_EQ(refusal("qwen3", {.context = 3, .context_method = ContextMethod::kHeads}),
            "[parallel.context] is 3: 4 query heads cannot be divided equally between 3 ranks; set context "
            "to 1, 2 or 4, or context_method to ring");
  EXPECT_EQ(refusal("qwen3_next", {.context = 3}),
            "[parallel.context] is 3: 4 value heads of gated delta layers cannot be divided equally between "
            "3 ranks; set context to 1, 2 or 4");
  EXPECT_EQ(refusal("qwen3", {.tensor = 2, .sequence = false}), "");
}

RunConfig with_degrees_of(const ParallelConfig::Degrees& degrees) {
  RunConfig config;
  config.model.path = "nowhere";  // nothing is known of the model
  config.parallel.degrees = degrees;
  return config;
}

TEST(Mesh, OneAxisTakesWhatTheOthersLeave) {
  EXPECT_EQ(to_string(mesh_of(RunConfig(), 6)), "replicate 6, shard 1");
  for (size_t i = 0; i < kMeshAxes.size(); ++i) {
    RunConfig config = with_degrees_of({"auto", "1", "1", "1", "1"});
    config.parallel.degrees[i] = "auto";
    const Mesh mesh = mesh_of(config, 6);
    EXPECT_EQ(mesh.*kMeshAxes[i].degree, 6) << kMeshAxes[i].name;
    EXPECT_EQ(mesh.size(), 6);
  }
  EXPECT_EQ(to_string(mesh_of(with_degrees_of({"auto", "2", "1", "auto", "3"}), 24)),
            "replicate 1, shard 2, tensor 4, expert 3");
}

TEST(Mesh, DegreesThatCannotBeAreRefusedByTheirKeys) {
  const auto error = [](const ParallelConfig::Degrees& degrees, int ranks) {
    return error_of([&] { mesh_of(with_degrees_of(degrees), ranks); });
  };
  EXPECT_EQ(
      error({"auto", "auto", "1", "1", "auto"}, 4),
      "[parallel] several of shard, context, tensor and expert are auto; write numbers for all but one");
  EXPECT_EQ(error({"1", "1", "1", "1", "0"}, 4),
            "[parallel.expert] is '0'; expected a number of ranks, at least 1, or auto");
  EXPECT_EQ(error({"auto", "1", "1", "3", "1"}, 8),
            "[parallel] replicate auto and shard 1 and tensor 3 make 3 ranks, but there are 8; possible are "
            "{replicate: 8, shard: 1}, {replicate: 1, shard: 8}, {replicate: 4, shard: 2}");
  EXPECT_EQ(error({"2", "1", "1", "2", "2"}, 1),
            "[parallel] replicate 2 and shard 1 and tensor 2 and expert 2 make 8 ranks, but there is 1; "
            "possible are {replicate: 1, shard: 1}");
}

// What the configuration says of axes that divide layers stays where it can; each level is on its axis.
TEST(Mesh, ProposalsKeepTheDegreesOfDividedLayers) {
  EXPECT_EQ(
      proposed_meshes(with_degrees_of({"1", "1", "1", "2", "4"}), 8),
      "{replicate: 1, shard: 1, tensor: 2, expert: 4}, {replicate: 1, shard: 1, shard_level: 3, tensor: "
      "2, expert: 4}, {replicate: 4, shard: 1, expert: 2}");
  EXPECT_EQ(
      proposed_meshes(with_degrees_of({"1", "1", "1", "2", "2"}), 4),
      "{replicate: 1, shard: 1, tensor: 2, expert: 2}, {replicate: 1, shard: 1, shard_level: 3, tensor: "
      "2, expert: 2}, {replicate: 2, shard: 1, context: 2}");
}

}  // namespace
}  // namespace temper::recipes
