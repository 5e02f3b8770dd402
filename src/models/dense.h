#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "layers/decoder.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"

namespace temper::models {

// What the dense families share: attention with rotary positions and a gated MLP in every layer. Sizes
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
  bool qk_norm = false;          // RMS norm of each query and key head
  bool norms_all_heads = false;  // qk_norm of all heads together
  double norm_offset = 0;        // added to the weights of all norms
  bool output_gate = false;      // of attention
  bool sinks = false;            // of attention's softmax
  bool reads_mxfp4 = false;      // of a family whose files may have experts in MXFP4 (checkpoints/mxfp4.h)
  double attention_scale = 0;    // 0: 1 / sqrt(head_dim)
  bool interleaved_rotation = false;
  bool fused_qkv = false, fused_gate_up = false;  // in files
  ops::Activation activation = ops::Activation::kSilu;
  layers::LayerNorms norms = {};
  layers::Multipliers multipliers = {};
  bool tied_head = false;
  std::vector<int64_t> windows;  // per layer: 0 for full attention, otherwise the sliding window
  layers::RopeConfig rope;
  // Of a family that rotates a part of each head: where the file does not say how much.
  std::optional<double> partial_rotary_factor = {};
  std::optional<ops::RotarySections> rope_sections = {};  // of such a family (RopeKinds)
  bool ropes_by_type = false;                  // of a family that reads them itself (read_ropes_by_type)
  std::vector<layers::RopeConfig> ropes = {};  // per layer, where they differ; empty: rope in all of them
};

// All but the blocks.
layers::DecoderConfig without_blocks(const DenseConfig& config);
// The channel of a layer that has none of its own is the gated MLP.
using ChannelOf = std::function<std::shared_ptr<const layers::Channel>(int64_t layer)>;
layers::DecoderConfig decoder_of(const DenseConfig& config, const ChannelOf& channel_of = nullptr);

}  // namespace temper::models
