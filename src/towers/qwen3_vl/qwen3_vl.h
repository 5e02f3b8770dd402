#pragma once
#include "towers/patch_tower.h"

namespace temper::towers {

// Qwen3-VL's, which Qwen3-VL-MoE and Qwen3.5 have, too (transformers' Qwen3VLVisionModel): LayerNorm, an MLP
// with GELU in its tanh form, attention within frames, a square table of `positions` entries that is
// resampled to each frame, and mergers of their own behind the blocks of `deepstack`.
std::shared_ptr<const layers::Tower> qwen3_vl(const TowerSizes& sizes, int64_t positions,
                                              const std::vector<int64_t>& deepstack);

}  // namespace temper::towers
