#include "towers/patch_tower.h"

#include <algorithm>

#include "base/error.h"
#include "towers/bound_patch_tower.h"
#include "towers/places.h"

namespace temper::towers {
namespace {

// The blocks that are counted from 0 and rise.
void check_blocks(const char* key, const std::vector<int64_t>& blocks, int64_t depth) {
  int64_t least = 0;
  for (const int64_t block : blocks) {
    if (block < least || block >= depth)
      fail("vision_config: {} has block {}; blocks must rise and be 0 to {}", key, block, depth - 1);
    least = block + 1;
  }
}

void check(const PatchTowerConfig& config) {
  const TowerSizes& s = config.sizes;
  for (const auto& [key, value] : {std::pair{"depth", s.depth},
                                   {"width", s.width},
                                   {"num_heads", s.heads},
                                   {"intermediate size", s.inner},
                                   {"output width", s.text_width},
                                   {"channels", s.channels},
                                   {"patch_size", s.patch},
                                   {"temporal_patch_size", s.frames},
                                   {"spatial_merge_size", s.merge}})
    if (value < 1) fail("vision_config: {} is {}, needs 1 or more", key, value);
  if (s.width % s.heads != 0 || s.width / s.heads % 4 != 0)
    fail("vision_config: {} heads of a width of {}; a head's width must be a multiple of 4", s.heads,
         s.width);
  check_blocks("fullatt_block_indexes", config.full_blocks, s.depth);
  check_blocks("deepstack_visual_indexes", config.deepstack, s.depth);
}

class PatchTower : public layers::Tower {
 public:
  explicit PatchTower(PatchTowerConfig config) : c_(std::move(config)) {}

  void declare(layers::TowerWeights& weights) const override {
    const TowerSizes& s = c_.sizes;
    weights.tensor("patch_embed.proj.weight", {s.width, s.channels, s.frames, s.patch, s.patch});
    if (c_.patch_bias) weights.vector("patch_embed.proj.bias", s.width);
    if (c_.table_side > 0) weights.tensor("pos_embed.weight", {c_.table_side * c_.table_side, s.width});
    for (int64_t i = 0; i < s.depth; ++i) {
      layers::TowerWeights block = weights.within(block_scope(i));
      TowerBlock::declare(block, c_.block);
    }
    Merger::declare(weights, c_.merger);
    for (const MergerConfig& merger : c_.deep_mergers) Merger::declare(weights, merger);
  }

  void name_ops(const layers::TowerOps& ops) const override {
    ops.use<ops::Linear>("patch_embed.proj",
                         {ops.dtype(), c_.sizes.patch_values(), c_.sizes.width, c_.patch_bias});
    for (int64_t i = 0; i < c_.sizes.depth; ++i) {
      const layers::TowerOps block = ops.within(block_scope(i));
      TowerBlock::name_ops(block, c_.block);
    }
    Merger::name_ops(ops, c_.merger);
    for (const MergerConfig& merger : c_.deep_mergers) Merger::name_ops(ops, merger);
  }

  std::unique_ptr<layers::BoundTower> bind(const layers::Binding& binding) const override {
    return std::make_unique<BoundPatchTower>(c_, binding);
  }

  int64_t tokens(const PatchGrid& grid) const override {
    const int64_t merge = c_.sizes.merge;
    if (grid.frames < 1 || grid.rows < 1 || grid.columns < 1 || grid.rows % merge != 0 ||
        grid.columns % merge != 0)
      fail(
          "a picture of {} × {} × {} patches (frames, rows, columns); rows and columns must be multiples of "
          "{}",
          grid.frames, grid.rows, grid.columns, merge);
    return grid.patches() / (merge * merge);
  }

  double flops(std::span<const PatchGrid> grids) const override {
    const TowerSizes& s = c_.sizes;
    int64_t patches = 0, tokens = 0;
    for (const PatchGrid& grid : grids) {
      patches += grid.patches();
      tokens += this->tokens(grid);
    }
    double flops = 2 * static_cast<double>(patches) * static_cast<double>(s.patch_values() * s.width);
    const Tensor frames = frame_starts(grids),
                 windows = c_.window > 0 ? windows_of(grids, s.merge, c_.window).starts : frames;
    for (int64_t i = 0; i < s.depth; ++i)
      flops += TowerBlock::flops(c_.block, (is_full(c_, i) ? frames : windows).values<int32_t>());
    for (const MergerConfig& merger : c_.deep_mergers)
      flops += static_cast<double>(tokens) * TowerMlp::flops_of_row(merger.mlp);
    return flops + static_cast<double>(tokens) * TowerMlp::flops_of_row(c_.merger.mlp);
  }

  Json::Object describe() const override {
    const TowerSizes& s = c_.sizes;
    const auto list = [](const std::vector<int64_t>& values) {
      Json::Array all;
      for (const int64_t value : values) all.emplace_back(value);
      return all;
    };
    Json::Object all{{"depth", s.depth},
                     {"width", s.width},
                     {"num_heads", s.heads},
                     {"intermediate_size", s.inner},
                     {"text width", s.text_width},
                     {"channels", s.channels},
                     {"patch_size", s.patch},
                     {"temporal_patch_size", s.frames},
                     {"spatial_merge_size", s.merge},
                     {"norm", c_.block.norm.kind == NormKind::kRms ? "rms" : "layer"}};
    if (c_.table_side > 0) all.emplace_back("num_position_embeddings", c_.table_side * c_.table_side);
    if (c_.window > 0) {
      all.emplace_back("window in tokens", c_.window);
      all.emplace_back("fullatt_block_indexes", list(c_.full_blocks));
    }
    if (!c_.deepstack.empty()) all.emplace_back("deepstack_visual_indexes", list(c_.deepstack));
    return all;
  }

 private:
  PatchTowerConfig c_;
};

}  // namespace

std::string block_scope(int64_t block) { return fmt::format("blocks.{}.", block); }

bool is_full(const PatchTowerConfig& config, int64_t block) {
  return config.window == 0 ||
         std::find(config.full_blocks.begin(), config.full_blocks.end(), block) != config.full_blocks.end();
}

std::shared_ptr<const layers::Tower> patch_tower(PatchTowerConfig config) {
  check(config);
  return std::make_shared<PatchTower>(std::move(config));
}

}  // namespace temper::towers
