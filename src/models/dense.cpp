#include "models/dense.h"

#include "channels/gated_mlp/gated_mlp.h"
#include "mixers/attention/attention.h"

namespace temper::models {

layers::DecoderConfig decoder_of(const DenseConfig& c, const ChannelOf& channel_of) {
  layers::DecoderConfig decoder{.vocab_size = c.vocab_size,
                                .hidden_size = c.hidden_size,
                                .max_positions = c.max_positions,
                                .rms_norm_eps = c.rms_norm_eps,
                                .initializer_range = c.initializer_range,
                                .tied_head = c.tied_head,
                                .blocks = {}};
  const auto mlp = channels::gated_mlp({c.hidden_size, c.intermediate_size, c.mlp_bias});
  for (const int64_t window : c.windows) {
    auto channel = channel_of ? channel_of(std::ssize(decoder.blocks)) : nullptr;
    decoder.blocks.push_back({mixers::attention({.hidden = c.hidden_size,
                                                 .num_heads = c.num_heads,
                                                 .num_kv_heads = c.num_kv_heads,
                                                 .head_dim = c.head_dim,
                                                 .window = window,
                                                 .qkv_bias = c.qkv_bias,
                                                 .output_bias = c.output_bias,
                                                 .qk_norm = c.qk_norm,
                                                 .norm_eps = c.rms_norm_eps,
                                                 .rope = c.rope}),
                              channel ? std::move(channel) : mlp});
  }
  return decoder;
}

}  // namespace temper::models
