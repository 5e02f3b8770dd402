#pragma once
#include "towers/patch_tower.h"

namespace temper::towers {

// Qwen2.5-VL's (Bai et al., 2025, arXiv:2502.13923; transformers'
// Qwen2_5_VisionTransformerPretrainedModel): RMSNorm, swiglu with biases, attention within windows of
// window × window tokens, and within frames in `full_blocks`.
std::shared_ptr<const layers::Tower> qwen2_5_vl(const TowerSizes& sizes, int64_t window,
                                                const std::vector<int64_t>& full_blocks);

}  // namespace temper::towers
