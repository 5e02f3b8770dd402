#include "models/tower_reader.h"

#include <cmath>

#include "base/error.h"
#include "models/config_reader.h"
#include "towers/qwen2_5_vl/qwen2_5_vl.h"
#include "towers/qwen2_vl/qwen2_vl.h"
#include "towers/qwen3_vl/qwen3_vl.h"
#include "towers/siglip/siglip.h"

namespace temper::models {
namespace {

using towers::TowerSizes;

constexpr int64_t kMost = int64_t{1} << 20;  // of any size

// The keys that all Qwen towers have, with transformers' defaults.
void read_patches(ConfigReader& reader, TowerSizes& sizes) {
  const int64_t old_spelling = reader.positive("in_chans", 3, kMost);
  sizes.channels = reader.positive("in_channels", old_spelling, kMost);
  sizes.frames = reader.positive("temporal_patch_size", 2, kMost);
  sizes.merge = reader.positive("spatial_merge_size", 2, kMost);
  sizes.depth = reader.positive("depth", sizes.depth, kMost);
  sizes.heads = reader.positive("num_heads", 16, kMost);
  sizes.patch = reader.positive("patch_size", sizes.patch, kMost);
}

// `otherwise`: the sizes that the file does not say. Qwen2-VL spells them otherwise.
TowerSizes read_sizes(ConfigReader& reader, TowerSizes otherwise) {
  otherwise.width = reader.positive("hidden_size", otherwise.width, kMost);
  otherwise.inner = reader.positive("intermediate_size", otherwise.inner, kMost);
  otherwise.text_width = reader.positive("out_hidden_size", 3584, kMost);
  read_patches(reader, otherwise);
  return otherwise;
}

std::vector<int64_t> read_blocks(ConfigReader& reader, const char* key, std::vector<int64_t> otherwise) {
  const Json* const given = reader.find(key);
  if (given == nullptr) return otherwise;
  std::vector<int64_t> blocks;
  for (const Json& block : given->as_array()) blocks.push_back(block.as_int());
  return blocks;
}

std::shared_ptr<const layers::Tower> read_qwen2(ConfigReader& reader) {
  TowerSizes sizes{.depth = 32, .patch = 14};
  sizes.width = reader.positive("embed_dim", 1280, kMost);
  sizes.inner = static_cast<int64_t>(static_cast<double>(sizes.width) * reader.number("mlp_ratio", 4));
  sizes.text_width = reader.positive("hidden_size", 3584, kMost);
  read_patches(reader, sizes);
  expect_activation(reader, "hidden_act", {"quick_gelu"});
  return towers::qwen2_vl(sizes);
}

std::shared_ptr<const layers::Tower> read_qwen2_5(ConfigReader& reader) {
  const TowerSizes sizes = read_sizes(reader, {.depth = 32, .width = 3584, .inner = 3420, .patch = 14});
  expect_activation(reader, "hidden_act", {"silu", "swish"});
  const int64_t pixels = reader.positive("window_size", 112, kMost);
  return towers::qwen2_5_vl(sizes, pixels / sizes.merge / sizes.patch,
                            read_blocks(reader, "fullatt_block_indexes", {7, 15, 23, 31}));
}

// `deepstack`: the blocks where the file does not say.
std::shared_ptr<const layers::Tower> read_qwen3(ConfigReader& reader, const std::vector<int64_t>& deepstack) {
  const TowerSizes sizes = read_sizes(reader, {.depth = 27, .width = 1152, .inner = 4304, .patch = 16});
  expect_activation(reader, "hidden_act", {"gelu_pytorch_tanh"});
  return towers::qwen3_vl(sizes, reader.positive("num_position_embeddings", 2304, kMost),
                          read_blocks(reader, "deepstack_visual_indexes", deepstack));
}

// Whose tokens and text stand at the top of the file.
std::shared_ptr<const layers::Tower> read_siglip(ConfigReader& reader, const Json& config,
                                                 const std::string& where) {
  towers::SiglipSizes sizes;
  sizes.depth = reader.positive("num_hidden_layers", 12, kMost);
  sizes.width = reader.positive("hidden_size", 768, kMost);
  sizes.heads = reader.positive("num_attention_heads", 12, kMost);
  sizes.inner = reader.positive("intermediate_size", 3072, kMost);
  sizes.channels = reader.positive("num_channels", 3, kMost);
  sizes.patch = reader.positive("patch_size", 16, kMost);
  sizes.eps = reader.not_negative("layer_norm_eps", 1e-6);
  sizes.side = reader.positive("image_size", 224, kMost) / sizes.patch;
  expect_activation(reader, "hidden_act", {"gelu_pytorch_tanh"});
  ConfigReader top(config, where);
  const int64_t tokens = top.positive("mm_tokens_per_image", 256, kMost);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(tokens))));
  if (side * side != tokens || sizes.side % side != 0)
    top.refuse("mm_tokens_per_image",
               fmt::format("is {}; a picture of {} × {} patches cannot become a square of that many tokens",
                           tokens, sizes.side, sizes.side));
  sizes.pool = sizes.side / side;
  const Json* const text = config.find("text_config");
  if (text == nullptr) top.refuse("text_config", "is missing");
  sizes.text_width = ConfigReader(*text, where + " text_config").positive("hidden_size", 2304, kMost);
  return towers::siglip(sizes);
}

}  // namespace

std::shared_ptr<const layers::Tower> read_tower(const Json& config, const std::string& where) {
  const Json* const type = config.find("model_type");
  const Json* const vision = config.find("vision_config");
  if (type == nullptr || vision == nullptr) return nullptr;
  const std::string family = type->as_string();
  ConfigReader reader(*vision, where + " vision_config");
  if (family == "qwen2_vl") return read_qwen2(reader);
  if (family == "qwen2_5_vl") return read_qwen2_5(reader);
  if (family == "qwen3_vl" || family == "qwen3_vl_moe") return read_qwen3(reader, {8, 16, 24});
  if (family == "qwen3_5" || family == "qwen3_5_moe") return read_qwen3(reader, {});
  if (family == "gemma3") return read_siglip(reader, config, where);
  return nullptr;
}

}  // namespace temper::models
