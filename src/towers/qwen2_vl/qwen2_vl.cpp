#include "towers/qwen2_vl/qwen2_vl.h"

namespace temper::towers {

std::shared_ptr<const layers::Tower> qwen2_vl(const TowerSizes& sizes) {
  PatchTowerConfig config{.sizes = sizes};
  config.block = {.width = sizes.width,
                  .heads = sizes.heads,
                  .mlp = {.first = "mlp.fc1",
                          .second = "mlp.fc2",
                          .in = sizes.width,
                          .inner = sizes.inner,
                          .out = sizes.width,
                          .gelu = ops::GeluForm::kQuick}};
  config.merger = {.norm = "merger.ln_q",
                   .width = sizes.width,
                   .mlp = {.first = "merger.mlp.0",
                           .second = "merger.mlp.2",
                           .in = sizes.joined(),
                           .inner = sizes.joined(),
                           .out = sizes.text_width}};
  return patch_tower(std::move(config));
}

}  // namespace temper::towers
