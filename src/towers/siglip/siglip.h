#pragma once
#include "layers/tower.h"

namespace temper::towers {

struct SiglipSizes {
  int64_t depth = 0, width = 0, heads = 0, inner = 0;  // blocks; of rows, of an MLP between its linears
  int64_t text_width = 0;
  int64_t channels = 3, patch = 14, side = 64;  // pixels of a patch's side; patches of a picture's side
  int64_t pool = 4;                             // pool × pool patches become a token
  double eps = 1e-6;                            // of all norms

  int64_t patch_values() const { return channels * patch * patch; }
};

// SigLIP (Zhai et al., 2023, arXiv:2303.15343) as Gemma 3 has it, with what leads to its text (transformers'
// SiglipVisionModel and Gemma3MultiModalProjector): square pictures of one size, a table of positions, blocks
// with LayerNorm and GELU in its tanh form, the mean of each pool, an RMSNorm and one matrix. Patches come
// row by row, grids are {1, side, side}.
//
// Names in files begin "vision_tower.vision_model." and "multi_modal_projector.".
std::shared_ptr<const layers::Tower> siglip(const SiglipSizes& sizes);

}  // namespace temper::towers
