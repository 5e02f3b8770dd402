#pragma once
#include "towers/patch_tower.h"

namespace temper::towers {

// Qwen2-VL's (Wang et al., 2024, arXiv:2409.12191; transformers' Qwen2VisionTransformerPretrainedModel):
// LayerNorm, an MLP with quick GELU, attention within frames.
std::shared_ptr<const layers::Tower> qwen2_vl(const TowerSizes& sizes);

}  // namespace temper::towers
