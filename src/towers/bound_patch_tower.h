#pragma once
#include "towers/patch_tower.h"
#include "towers/places.h"

namespace temper::towers {

std::string block_scope(int64_t block);                       // "blocks.0."
bool is_full(const PatchTowerConfig& config, int64_t block);  // whether the block sees whole frames

// The forward pass of a tower that patch_tower() has described. Where there are windows its rows are in their
// order, from the patches on, and merged rows go back to that of the pictures.
class BoundPatchTower : public layers::BoundTower {
 public:
  BoundPatchTower(const PatchTowerConfig& config, const layers::Binding& binding);

  layers::SeenRows forward(Tape& tape, const layers::TowerInput& input,
                           const layers::TowerOptions& options) const override;

 private:
  // What a pass knows of its pictures.
  struct Pass {
    BlockPass blocks;
    Tensor frames, windows;      // the documents of attention; without windows the same
    std::vector<int32_t> order;  // of tokens, window by window; empty: as they came
    Taps taps;                   // of the table, if there is one
  };
  void check(const layers::TowerInput& input) const;
  Pass pass_of(const layers::TowerInput& input) const;
  layers::SeenRows run(Tape& tape, const layers::TowerInput& input,
                       const layers::TowerOptions& options) const;
  layers::Stream embed(Tape& tape, const Tensor& patches, const Pass& pass) const;
  Var positions(Tape& tape, const Taps& taps) const;  // [patches, width]
  layers::Stream through(Tape& tape, size_t block, const layers::Stream& stream, const Pass& pass,
                         bool checkpoint) const;
  Var in_given_order(Tape& tape, const Var& merged, const Pass& pass) const;

  PatchTowerConfig config_;
  DType dtype_;
  Device device_;
  layers::BoundWeight patch_weight_, patch_bias_, table_;
  ops::Bound<ops::Linear> patches_;
  std::vector<TowerBlock> blocks_;
  Merger merger_;
  std::vector<Merger> deep_mergers_;
};

}  // namespace temper::towers
