#include "recipes/plans/mesh.h"

#include <gtest/gtest.h>

#include "models/model.h"
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
  EXPECT_EQ(refusal("qwen3", {.tensor = 2, .sequence = false}), "");
}

}  // namespace
}  // namespace temper::recipes
