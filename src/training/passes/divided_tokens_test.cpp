#include "training/passes/divided_tokens.h"

#include <gtest/gtest.h>

#include "collectives/local/local.h"
#include "parallel/mesh_groups.h"
#include "tests/support/tiny_model.h"
#include "training/passes/micro_batch.h"

namespace temper::training {
namespace {

// Plans have one of the ranks alone. Its numbers stand for those of the others, who may have more.
TEST(DividedTokens, OfAPlanAreAsManyAsThereAre) {
  const auto ranks = collectives::planned_group(2);
  const parallel::MeshGroups groups(*ranks, {.context = 2});
  models::BuildOptions build;
  build.counted = true;
  build.ranks = groups.model();
  const auto model = models::build_model(tiny_config("qwen3"), "tiny", build);
  const std::vector<int32_t> ids(8, 1), lengths{8};
  const layers::DecoderInput input = layers::make_input(ids, lengths, {});
  const layers::TokenCut cut =
      form_of(model->decoder).cut(std::vector<int64_t>{std::ssize(ids)}, input.positions);
  const std::vector<int32_t> last{5, 6, 7};  // all of them on the other rank
  const DividedTokens divided(model->decoder, cut, last);
  ASSERT_EQ(divided.positions().size(), 0u);
  EXPECT_EQ(divided.gather({}), std::vector<float>(3));
}

}  // namespace
}  // namespace temper::training
