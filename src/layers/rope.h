#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/json/json.h"
#include "ops/rotary/rotary.h"
#include "tensor/tensor.h"

namespace temper::layers {

enum class RopeType : uint8_t { kDefault, kLinear, kLlama3, kYarn };

// How positions become angles. Formulas: default, Su et al. 2021; linear, Chen et al. 2023
// (arXiv:2306.15595); llama3, the Llama 3.1 release; yarn, Peng et al. 2023 (arXiv:2309.00071). Names are
// Hugging Face's.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double partial_rotary_factor = 1;  // of each head, from its beginning; 0: not rotated
  double factor = 1;
  int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1, high_freq_factor = 4;                               // llama3
  double beta_fast = 32, beta_slow = 1;                                           // yarn
  std::optional<double> attention_factor = {}, mscale = {}, mscale_all_dim = {};  // yarn
  bool truncate = true;                                                           // yarn
  // Of models whose tokens may have three positions, which pictures give them.
  ops::RotarySections sections = {};

  bool operator==(const RopeConfig&) const = default;
};

Json::Object describe(const RopeConfig& config);  // what its type reads

int64_t rotated_width(const RopeConfig& config, int64_t head_dim);

// head_dim: of what is rotated.
std::vector<float> rope_inverse_frequencies(const RopeConfig& config, int64_t head_dim);
double rope_attention_scaling(const RopeConfig& config);  // of cosines and sines
// An additional factor of attention's scores in models whose heads are rotated in part (DeepSeek-V3): the
// square of YaRN's factor for all dimensions. 1 where mscale_all_dim is not given.
double rope_softmax_scaling(const RopeConfig& config);

struct RopeTables {
  Tensor cos, sin;  // [positions, head_dim / 2] float32
};
RopeTables make_rope_tables(const RopeConfig& config, int64_t head_dim, int64_t positions);

}  // namespace temper::layers
