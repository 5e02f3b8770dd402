#include "towers/qwen2_5_vl/qwen2_5_vl.h"

#include "base/error.h"

namespace temper::towers {

std::shared_ptr<const layers::Tower> qwen2_5_vl(const TowerSizes& sizes, int64_t window,
                                                const std::vector<int64_t>& full_blocks) {
  if (window < 1)
    fail("vision_config: window_size must be at least one token, spatial_merge_size · patch_size pixels");
  PatchTowerConfig config{.sizes = sizes, .window = window, .full_blocks = full_blocks};
  const NormConfig norm{.kind = NormKind::kRms};
  config.block = {.width = sizes.width,
                  .heads = sizes.heads,
                  .norm = norm,
                  .mlp = {.first = "mlp.gate_up",
                          .second = "mlp.down_proj",
                          .in = sizes.width,
                          .inner = sizes.inner,
                          .out = sizes.width,
                          .gelu = std::nullopt,
                          .gate = "mlp.gate_proj",
                          .up = "mlp.up_proj"}};
  config.merger = {.norm = "merger.ln_q",
                   .of_norm = norm,
                   .width = sizes.width,
                   .mlp = {.first = "merger.mlp.0",
                           .second = "merger.mlp.2",
                           .in = sizes.joined(),
                           .inner = sizes.joined(),
                           .out = sizes.text_width}};
  return patch_tower(std::move(config));
}

}  // namespace temper::towers
