#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "layers/decoder.h"

namespace temper::models {

// What llama, qwen2 and qwen3 share: attention with rotary positions and a gated MLP in every layer. Sizes
// are those of config.json.
struct DenseConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each query and key head
  bool tied_head = false;
  std::vector<int64_t> windows;  // per layer: 0 for full attention, otherwise the sliding window
  layers::RopeConfig rope;
};

// The channel of a layer that has none of its own is the gated MLP.
using ChannelOf = std::function<std::shared_ptr<const layers::Channel>(int64_t layer)>;
layers::DecoderConfig decoder_of(const DenseConfig& config, const ChannelOf& channel_of = nullptr);

}  // namespace temper::models
