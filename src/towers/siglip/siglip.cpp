#include "towers/siglip/siglip.h"

#include "base/error.h"
#include "layers/glue.h"
#include "ops/linear/linear.h"
#include "primitives/primitives.h"
#include "towers/places.h"
#include "towers/tower_block.h"

namespace temper::towers {
namespace {

namespace p = primitives;
using layers::SeenRows;
using layers::Stream;
using layers::TowerInput;
using layers::TowerOptions;

const std::string kModel = "vision_tower.vision_model.";
const std::string kPatches = kModel + "embeddings.patch_embedding";
const std::string kTable = kModel + "embeddings.position_embedding.weight";
const std::string kEnd = kModel + "post_layernorm";
const std::string kTextNorm = "multi_modal_projector.mm_soft_emb_norm";
const std::string kProjection = "multi_modal_projector.mm_input_projection_weight";

std::string layer_scope(int64_t layer) { return fmt::format("{}encoder.layers.{}.", kModel, layer); }

NormConfig norm_of(const SiglipSizes& sizes) { return {.eps = sizes.eps}; }

BlockConfig block_of(const SiglipSizes& sizes) {
  return {.width = sizes.width,
          .heads = sizes.heads,
          .norm = norm_of(sizes),
          .mlp = {.first = "mlp.fc1",
                  .second = "mlp.fc2",
                  .in = sizes.width,
                  .inner = sizes.inner,
                  .out = sizes.width,
                  .gelu = ops::GeluForm::kTanh},
          .rotary = false,
          .norm1 = "layer_norm1",
          .norm2 = "layer_norm2",
          .qkv = "self_attn.qkv",
          .output = "self_attn.out_proj",
          .qkv_in_files = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}};
}

void check_grids(const SiglipSizes& sizes, std::span<const PatchGrid> grids) {
  const auto side = static_cast<int32_t>(sizes.side);
  for (const PatchGrid& grid : grids)
    if (grid != PatchGrid{1, side, side})
      fail("[tower] a grid is {} × {} × {} patches (frames, rows, columns); this tower needs 1 × {} × {}",
           grid.frames, grid.rows, grid.columns, side, side);
}

// Rows are pool by pool from the patches on, so that a pool's follow one another.
class BoundSiglip : public layers::BoundTower {
 public:
  BoundSiglip(const SiglipSizes& sizes, const layers::Binding& binding)
      : s_(sizes),
        dtype_(binding.parameters.dtype()),
        device_(binding.parameters.device()),
        patch_weight_(binding.weight(kPatches + ".weight")),
        patch_bias_(binding.weight(kPatches + ".bias")),
        table_(binding.weight(kTable)),
        text_norm_weight_(binding.weight(kTextNorm + ".weight")),
        projection_weight_(binding.weight(kProjection)),
        patches_(binding.kernel<ops::Linear>(kPatches)),
        end_(binding, kEnd, norm_of(sizes)),
        text_norm_(binding.kernel<ops::RmsNorm>(kTextNorm)),
        projection_(binding.kernel<ops::Linear>(kProjection)) {
    for (int64_t i = 0; i < sizes.depth; ++i) {
      layers::Binding of_layer = binding;
      of_layer.scope += layer_scope(i);
      blocks_.emplace_back(of_layer, block_of(sizes));
    }
  }

  SeenRows forward(Tape& tape, const TowerInput& input, const TowerOptions& options) const override {
    check(input);
    if (!options.frozen || !tape.recording()) return run(tape, input, options);
    Tape silent(false);
    return run(silent, input, options);
  }

 private:
  void check(const TowerInput& input) const {
    const Tensor& patches = input.patches;
    if (!patches.defined() || patches.ndim() != 2 || patches.dim(1) != s_.patch_values() ||
        patches.dtype() != DType::kF32 || !patches.is_contiguous())
      fail("[tower] patches are {}, needs [patches, {}] float32 without gaps",
           patches.defined() ? to_string(patches.shape()) : "missing", s_.patch_values());
    check_grids(s_, input.grids);
    const int64_t count = std::ssize(input.grids) * s_.side * s_.side;
    if (count != patches.dim(0))
      fail("[tower] there are {} patches; the grids of {} pictures have {}", patches.dim(0),
           input.grids.size(), count);
  }

  SeenRows run(Tape& tape, const TowerInput& input, const TowerOptions& options) const {
    const Tensor starts = frame_starts(input.grids);
    Stream stream = embed(tape, input);
    for (const TowerBlock& block : blocks_) {
      if (!options.checkpoint || !tape.recording()) {
        stream = block.forward(tape, stream, {}, starts);
        continue;
      }
      const Var start =
          stream.branch.value.defined() ? layers::residual_add(tape, stream.x, stream.branch) : stream.x;
      const Var end = tape.checkpoint(start, [&block, starts](Tape& inner, const Var& x) {
        const Stream both = block.forward(inner, {x, {}}, {}, starts);
        return layers::residual_add(inner, both.x, both.branch);
      });
      stream = {end, {}};
    }
    const Var rows = end_(tape, stream).y;
    if (options.hidden != nullptr) *options.hidden = rows.value;
    return {project(tape, rows)};
  }

  Stream embed(Tape& tape, const TowerInput& input) const {
    const int64_t side = s_.side, of_picture = side * side;
    const Places places =
        places_of(std::vector{PatchGrid{1, static_cast<int32_t>(side), static_cast<int32_t>(side)}}, s_.pool);
    std::vector<int32_t> rows, entries;
    for (int64_t picture = 0; picture < std::ssize(input.grids); ++picture)
      for (size_t i = 0; i < places.rows.size(); ++i) {
        const int64_t entry = places.rows[i] * side + places.columns[i];
        entries.push_back(static_cast<int32_t>(entry));
        rows.push_back(static_cast<int32_t>(picture * of_picture + entry));
      }
    Tape silent(false);
    const Tensor patches = p::gather_rows(silent, silent.constant(input.patches),
                                          {Tensor::from(rows), input.patches.dim(0), false})
                               .value;
    const Var matrix = p::reshape(tape, patch_weight_.leaf(tape), {s_.width, s_.patch_values()});
    const Var x = ops::linear(tape, patches_, tape.constant(patches.on(device_).to(dtype_)), matrix,
                              patch_bias_.leaf(tape));
    const Var table = table_.leaf(tape);
    return {x, p::gather_rows(tape, table, {Tensor::from(entries), of_picture, table.requires_grad()})};
  }

  // [patches, width] to [tokens, text width].
  Var project(Tape& tape, const Var& rows) const {
    const int64_t of_pool = s_.pool * s_.pool, tokens = rows.shape()[0] / of_pool;
    std::vector<int32_t> owners(static_cast<size_t>(rows.shape()[0]));
    for (size_t i = 0; i < owners.size(); ++i)
      owners[i] = static_cast<int32_t>(static_cast<int64_t>(i) / of_pool);
    const Var wide = p::cast(tape, rows, DType::kF32);
    const Var sums = p::sum_rows(tape, wide, {Tensor::from(owners), tokens, true});
    const Var means = p::cast(tape, p::scale(tape, sums, 1 / static_cast<float>(of_pool)), dtype_);
    const Var normed = ops::add_rms_norm(tape, text_norm_, means, {}, text_norm_weight_.leaf(tape),
                                         static_cast<float>(s_.eps), 1)
                           .y;
    return ops::linear(tape, projection_, normed, projection_weight_.leaf(tape));
  }

  SiglipSizes s_;
  DType dtype_;
  Device device_;
  layers::BoundWeight patch_weight_, patch_bias_, table_, text_norm_weight_, projection_weight_;
  ops::Bound<ops::Linear> patches_;
  std::vector<TowerBlock> blocks_;
  TowerNorm end_;
  ops::Bound<ops::RmsNorm> text_norm_;
  ops::Bound<ops::Linear> projection_;
};

class Siglip : public layers::Tower {
 public:
  explicit Siglip(const SiglipSizes& sizes) : s_(sizes) {}

  void declare(layers::TowerWeights& weights) const override {
    weights.tensor(kPatches + ".weight", {s_.width, s_.channels, s_.patch, s_.patch});
    weights.vector(kPatches + ".bias", s_.width);
    weights.tensor(kTable, {s_.side * s_.side, s_.width});
    for (int64_t i = 0; i < s_.depth; ++i) {
      layers::TowerWeights layer = weights.within(layer_scope(i));
      TowerBlock::declare(layer, block_of(s_));
    }
    TowerNorm::declare(weights, kEnd, norm_of(s_), s_.width);
    weights.vector(kTextNorm + ".weight", s_.width, true);
    weights.tensor(kProjection, {s_.text_width, s_.width}, true);
  }

  void name_ops(const layers::TowerOps& ops) const override {
    ops.use<ops::Linear>(kPatches, {ops.dtype(), s_.patch_values(), s_.width, true});
    for (int64_t i = 0; i < s_.depth; ++i) {
      const layers::TowerOps layer = ops.within(layer_scope(i));
      TowerBlock::name_ops(layer, block_of(s_));
    }
    TowerNorm::name_ops(ops, kEnd, norm_of(s_), s_.width);
    ops.use<ops::RmsNorm>(kTextNorm, {ops.dtype(), s_.width, 1});
    ops.use<ops::Linear>(kProjection, {ops.dtype(), s_.width, s_.text_width, false});
  }

  std::unique_ptr<layers::BoundTower> bind(const layers::Binding& binding) const override {
    return std::make_unique<BoundSiglip>(s_, binding);
  }

  int64_t tokens(const PatchGrid& grid) const override {
    check_grids(s_, std::span(&grid, 1));
    return grid.patches() / (s_.pool * s_.pool);
  }

  double flops(std::span<const PatchGrid> grids) const override {
    check_grids(s_, grids);
    const auto pictures = static_cast<double>(grids.size());
    const auto patches = pictures * static_cast<double>(s_.side * s_.side);
    const Tensor starts = frame_starts(grids);
    const double blocks =
        static_cast<double>(s_.depth) * TowerBlock::flops(block_of(s_), starts.values<int32_t>());
    const double tokens = patches / static_cast<double>(s_.pool * s_.pool);
    return 2 * patches * static_cast<double>(s_.patch_values() * s_.width) + blocks +
           2 * tokens * static_cast<double>(s_.width * s_.text_width);
  }

  Json::Object describe() const override {
    return {{"depth", s_.depth},
            {"width", s_.width},
            {"num_heads", s_.heads},
            {"intermediate_size", s_.inner},
            {"text width", s_.text_width},
            {"channels", s_.channels},
            {"patch_size", s_.patch},
            {"patches of a side", s_.side},
            {"patches of a pool's side", s_.pool},
            {"layer_norm_eps", s_.eps}};
  }

 private:
  SiglipSizes s_;
};

}  // namespace

std::shared_ptr<const layers::Tower> siglip(const SiglipSizes& sizes) {
  for (const auto& [key, value] : {std::pair{"num_hidden_layers", sizes.depth},
                                   {"hidden_size", sizes.width},
                                   {"num_attention_heads", sizes.heads},
                                   {"intermediate_size", sizes.inner},
                                   {"patch_size", sizes.patch},
                                   {"image_size / patch_size", sizes.side},
                                   {"pool", sizes.pool}})
    if (value < 1) fail("vision_config: {} is {}, needs 1 or more", key, value);
  if (sizes.width % sizes.heads != 0)
    fail("vision_config: hidden_size {} is not a multiple of {} heads", sizes.width, sizes.heads);
  if (sizes.side % sizes.pool != 0)
    fail("vision_config: {} patches of a picture's side are no multiple of pools of {}", sizes.side,
         sizes.pool);
  return std::make_shared<Siglip>(sizes);
}

}  // namespace temper::towers
