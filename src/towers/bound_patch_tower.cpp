#include "towers/bound_patch_tower.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "layers/glue.h"
#include "primitives/primitives.h"

namespace temper::towers {
namespace {

namespace p = primitives;
using layers::SeenRows;
using layers::Stream;
using layers::TowerInput;
using layers::TowerOptions;

layers::Binding within(const layers::Binding& binding, const std::string& scope) {
  layers::Binding inner = binding;
  inner.scope += scope;
  return inner;
}

// Groups of `group` rows in another order.
Tensor reordered(const Tensor& rows, int64_t group, const std::vector<int32_t>& order) {
  const Tensor result = Tensor::empty(rows.shape(), rows.dtype());
  const size_t bytes = static_cast<size_t>(group * rows.dim(1) * size_of(rows.dtype()));
  const auto* from = static_cast<const std::byte*>(rows.raw());
  auto* to = static_cast<std::byte*>(result.raw());
  for (const int32_t token : order) {
    std::memcpy(to, from + static_cast<size_t>(token) * bytes, bytes);
    to += bytes;
  }
  return result;
}

}  // namespace

BoundPatchTower::BoundPatchTower(const PatchTowerConfig& config, const layers::Binding& binding)
    : config_(config),
      dtype_(binding.parameters.dtype()),
      device_(binding.parameters.device()),
      patch_weight_(binding.weight("patch_embed.proj.weight")),
      patch_bias_(config.patch_bias ? binding.weight("patch_embed.proj.bias") : layers::BoundWeight()),
      table_(config.table_side > 0 ? binding.weight("pos_embed.weight") : layers::BoundWeight()),
      patches_(binding.kernel<ops::Linear>("patch_embed.proj")),
      merger_(binding, config.merger) {
  for (int64_t i = 0; i < config.sizes.depth; ++i)
    blocks_.emplace_back(within(binding, block_scope(i)), config.block);
  for (const MergerConfig& merger : config.deep_mergers) deep_mergers_.emplace_back(binding, merger);
}

void BoundPatchTower::check(const TowerInput& input) const {
  const int64_t merge = config_.sizes.merge, values = config_.sizes.patch_values();
  const Tensor& patches = input.patches;
  if (!patches.defined() || patches.ndim() != 2 || patches.dim(1) != values ||
      patches.dtype() != DType::kF32 || !patches.is_contiguous())
    fail("[tower] patches are {}, needs [patches, {}] float32 without gaps",
         patches.defined() ? to_string(patches.shape()) : "missing", values);
  int64_t count = 0;
  for (const PatchGrid& grid : input.grids) {
    if (grid.frames < 1 || grid.rows < 1 || grid.columns < 1 || grid.rows % merge != 0 ||
        grid.columns % merge != 0)
      fail(
          "[tower] a grid is {} × {} × {} patches (frames, rows, columns); rows and columns must be "
          "multiples "
          "of {}",
          grid.frames, grid.rows, grid.columns, merge);
    count += grid.patches();
  }
  if (count != patches.dim(0))
    fail("[tower] there are {} patches; the grids of {} pictures have {}", patches.dim(0), input.grids.size(),
         count);
}

BoundPatchTower::Pass BoundPatchTower::pass_of(const TowerInput& input) const {
  const TowerSizes& s = config_.sizes;
  Pass pass;
  const Places places = places_of(input.grids, s.merge);
  if (table_.exists()) pass.taps = taps_of(input.grids, places, config_.table_side);
  pass.frames = pass.windows = frame_starts(input.grids);
  layers::RopeTables rope = rotary_tables(places, s.width / s.heads);
  if (config_.window > 0) {
    const Windows windows = windows_of(input.grids, s.merge, config_.window);
    pass.windows = windows.starts;
    pass.order = windows.order;
    for (Tensor* const table : {&rope.cos, &rope.sin})
      *table = reordered(*table, s.merge * s.merge, pass.order);
  }
  std::vector<int32_t> rows(places.rows.size());
  std::iota(rows.begin(), rows.end(), 0);
  pass.blocks = {Tensor::from(rows).on(device_), {rope.cos.on(device_), rope.sin.on(device_)}};
  return pass;
}

Var BoundPatchTower::positions(Tape& tape, const Taps& taps) const {
  const Var table = p::cast(tape, table_.leaf(tape), DType::kF32);
  const int64_t count = taps.entries.numel(), patches = count / Taps::kCount;
  const p::ChosenRows entries(taps.entries, table.shape()[0], table.requires_grad());
  const Var read = p::gather_rows(tape, table, entries);
  const Var weighted = p::mul(tape, read, tape.constant(taps.weights.on(device_)));
  std::vector<int32_t> owners(static_cast<size_t>(count));
  for (size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<int32_t>(i / Taps::kCount);
  return p::cast(tape, p::sum_rows(tape, weighted, {Tensor::from(owners), patches, true}), dtype_);
}

Stream BoundPatchTower::embed(Tape& tape, const Tensor& patches, const Pass& pass) const {
  const Tensor given = pass.order.empty()
                           ? patches
                           : reordered(patches, config_.sizes.merge * config_.sizes.merge, pass.order);
  const Var matrix = p::reshape(tape, patch_weight_.leaf(tape), {config_.sizes.width, patches.dim(1)});
  const Var x = ops::linear(tape, patches_, tape.constant(given.on(device_).to(dtype_)), matrix,
                            patch_bias_.leaf(tape));
  return {x, table_.exists() ? positions(tape, pass.taps) : Var()};
}

Stream BoundPatchTower::through(Tape& tape, size_t block, const Stream& stream, const Pass& pass,
                                bool checkpoint) const {
  const Tensor starts = is_full(config_, static_cast<int64_t>(block)) ? pass.frames : pass.windows;
  if (!checkpoint) return blocks_[block].forward(tape, stream, pass.blocks, starts);
  const Var start =
      stream.branch.value.defined() ? layers::residual_add(tape, stream.x, stream.branch) : stream.x;
  // Backward runs this again after the pass is gone: it keeps its own handles.
  const Var end = tape.checkpoint(
      start, [of_block = &blocks_[block], own = pass.blocks, starts](Tape& inner, const Var& x) {
        const Stream both = of_block->forward(inner, {x, {}}, own, starts);
        return layers::residual_add(inner, both.x, both.branch);
      });
  return {end, {}};
}

Var BoundPatchTower::in_given_order(Tape& tape, const Var& merged, const Pass& pass) const {
  if (pass.order.empty()) return merged;
  std::vector<int32_t> back(pass.order.size());
  for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(pass.order[i])] = static_cast<int32_t>(i);
  return p::gather_rows(tape, merged, {Tensor::from(back), merged.shape()[0], merged.requires_grad()});
}

SeenRows BoundPatchTower::run(Tape& tape, const TowerInput& input, const TowerOptions& options) const {
  const Pass pass = pass_of(input);
  const bool checkpoint = options.checkpoint && tape.recording();
  SeenRows seen;
  Stream stream = embed(tape, input.patches, pass);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    stream = through(tape, i, stream, pass, checkpoint);
    const auto deep = std::find(config_.deepstack.begin(), config_.deepstack.end(), static_cast<int64_t>(i));
    if (deep == config_.deepstack.end()) continue;
    if (stream.branch.value.defined()) stream = {layers::residual_add(tape, stream.x, stream.branch), {}};
    const auto place = static_cast<size_t>(deep - config_.deepstack.begin());
    seen.deepstack.push_back(in_given_order(tape, deep_mergers_[place](tape, stream), pass));
  }
  if (options.hidden != nullptr) {
    if (stream.branch.value.defined()) stream = {layers::residual_add(tape, stream.x, stream.branch), {}};
    *options.hidden = stream.x.value;
  }
  seen.merged = in_given_order(tape, merger_(tape, stream), pass);
  return seen;
}

SeenRows BoundPatchTower::forward(Tape& tape, const TowerInput& input, const TowerOptions& options) const {
  check(input);
  if (!options.frozen || !tape.recording()) return run(tape, input, options);
  Tape silent(false);
  return run(silent, input, options);
}

}  // namespace temper::towers
