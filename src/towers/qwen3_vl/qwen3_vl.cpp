#include "towers/qwen3_vl/qwen3_vl.h"

#include <cmath>

#include "base/error.h"

namespace temper::towers {
namespace {

MergerConfig merger_of(const TowerSizes& sizes, const std::string& module) {
  return {.norm = module + "norm",
          .width = sizes.width,
          .mlp = {.first = module + "linear_fc1",
                  .second = module + "linear_fc2",
                  .in = sizes.joined(),
                  .inner = sizes.joined(),
                  .out = sizes.text_width}};
}

}  // namespace

std::shared_ptr<const layers::Tower> qwen3_vl(const TowerSizes& sizes, int64_t positions,
                                              const std::vector<int64_t>& deepstack) {
  const auto side =
      static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(std::max<int64_t>(positions, 0)))));
  if (side < 1 || side * side != positions)
    fail("vision_config: num_position_embeddings is {}, needs a square number", positions);
  PatchTowerConfig config{.sizes = sizes, .patch_bias = true, .table_side = side, .deepstack = deepstack};
  config.block = {.width = sizes.width,
                  .heads = sizes.heads,
                  .mlp = {.first = "mlp.linear_fc1",
                          .second = "mlp.linear_fc2",
                          .in = sizes.width,
                          .inner = sizes.inner,
                          .out = sizes.width,
                          .gelu = ops::GeluForm::kTanh}};
  config.merger = merger_of(sizes, "merger.");
  for (size_t i = 0; i < deepstack.size(); ++i) {
    MergerConfig merger = merger_of(sizes, fmt::format("deepstack_merger_list.{}.", i));
    merger.joins_first = true;
    config.deep_mergers.push_back(std::move(merger));
  }
  return patch_tower(std::move(config));
}

}  // namespace temper::towers
