#pragma once
#include "layers/tower.h"
#include "towers/merger.h"
#include "towers/tower_block.h"

namespace temper::towers {

// What the towers of all Qwen families share.
struct TowerSizes {
  int64_t depth = 0, width = 0, heads = 0, inner = 0;  // blocks; of rows, of an MLP between its linears
  int64_t text_width = 0;
  int64_t channels = 3, patch = 14, frames = 2;  // of the values of a patch: patch × patch pixels of each
  int64_t merge = 2;                             // merge × merge patches become a token

  int64_t patch_values() const { return channels * frames * patch * patch; }
  int64_t joined() const { return merge * merge * width; }
};

// A tower as a room makes it up: patches to rows by one matrix, blocks, and mergers.
struct PatchTowerConfig {
  TowerSizes sizes = {};
  bool patch_bias = false;
  int64_t table_side = 0;  // of a square table of positions; 0: none
  BlockConfig block = {};
  int64_t window = 0;                     // in tokens: the side of what blocks see; 0: whole frames
  std::vector<int64_t> full_blocks = {};  // that see whole frames where there are windows
  MergerConfig merger = {};
  std::vector<int64_t> deepstack = {};          // blocks behind which a merger of its own reads the rows
  std::vector<MergerConfig> deep_mergers = {};  // one for each of them
};

// An Error "vision_config: …" where sizes do not fit each other.
std::shared_ptr<const layers::Tower> patch_tower(PatchTowerConfig config);

}  // namespace temper::towers
