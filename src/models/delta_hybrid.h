#pragma once
#include <vector>

#include "mixers/gated_delta/gated_delta.h"
#include "models/config_reader.h"

namespace temper::models {

// What the hybrids of attention and the gated delta rule share: layers of either, attention with a gate of
// its output and norms of heads, heads rotated in part, norms with weights as distances from one.
struct DeltaHybrid {
  DenseConfig dense;
  mixers::GatedDeltaConfig delta;
  std::vector<bool> delta_layers;
};

// `by_key_head`: how files lay out the projections of the delta rule. `dense` has the family's defaults.
DeltaHybrid read_delta_hybrid(ConfigReader& reader, DenseConfig dense, bool by_key_head);

// Layers with experts have a shared expert behind a gate; those without have the gated MLP.
layers::DecoderConfig decoder_of(const DeltaHybrid& hybrid, const ChannelOf& channel_of = nullptr);

// The experts of such a family, whose router normalizes unless the file may say otherwise.
std::shared_ptr<const layers::Channel> read_shared_mixture(ConfigReader& reader, int64_t hidden,
                                                           bool normalize);

}  // namespace temper::models
