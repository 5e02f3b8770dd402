#include "models/dense.h"

#include "channels/gated_mlp/gated_mlp.h"
#include "mixers/attention/attention.h"

namespace temper::models {

layers::DecoderConfig without_blocks(const DenseConfig& c) {
  return {.vocab_size = c.vocab_size,
          .hidden_size = c.hidden_size,
          .max_positions = c.max_positions,
          .rms_norm_eps = c.rms_norm_eps,
          .initializer_range = c.initializer_range,
          .tied_head = c.tied_head,
          .blocks = {},
          .norms = c.norms,
          .norm_offset = c.norm_offset,
          .multipliers = c.multipliers};
}

layers::DecoderConfig decoder_of(const DenseConfig& c, const ChannelOf& channel_of) {
  layers::DecoderConfig decoder = without_blocks(c);
  const auto mlp = channels::gated_mlp({.hidden = c.hidden_size,
                                        .intermediate = c.intermediate_size,
                                        .bias = c.mlp_bias,
                                        .activation = c.activation,
                                        .fused_in_files = c.fused_gate_up});
  for (size_t i = 0; i < c.windows.size(); ++i) {
    auto channel = channel_of ? channel_of(static_cast<int64_t>(i)) : nullptr;
    decoder.blocks.push_back(
        {mixers::attention({.hidden = c.hidden_size,
                            .num_heads = c.num_heads,
                            .num_kv_heads = c.num_kv_heads,
                            .head_dim = c.head_dim,
                            .window = c.windows[i],
                            .qkv_bias = c.qkv_bias,
                            .output_bias = c.output_bias,
                            .norm = {c.qk_norm, c.norms_all_heads, c.rms_norm_eps, c.norm_offset},
                            .scale = c.attention_scale,
                            .interleaved = c.interleaved_rotation,
                            .fused_in_files = c.fused_qkv,
                            .output_gate = c.output_gate,
                            .sinks = c.sinks,
                            .rope = c.ropes.empty() ? c.rope : c.ropes[i]}),
         channel ? std::move(channel) : mlp});
  }
  return decoder;
}

}  // namespace temper::models
