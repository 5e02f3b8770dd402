#include "parallel/model_parts.h"

#include <array>

namespace temper::parallel {

// Of one document of a usual length. An embedding reads rows, which costs next to nothing.
layers::ModelRanks with_parts(layers::ModelRanks ranks, const layers::DecoderConfig& model, int chunks) {
  layers::ModelStages& stages = ranks.stages;
  if (stages.count() == 1) return ranks;
  constexpr std::array<int32_t, 1> kTokens{4096};
  LayerCosts costs{.layers = {}, .head = layers::forward_flops(model, kTokens)};
  for (const layers::Block& block : model.blocks) {
    costs.layers.push_back(block.mixer->flops(kTokens) + block.channel->flops(kTokens[0]));
    costs.head -= costs.layers.back();
  }
  const std::vector<LayerRange> parts = divide_layers(costs, stages.count(), chunks);
  stages.parts.clear();
  for (size_t part = 0; part < parts.size(); ++part)
    stages.parts.insert(stages.parts.end(), static_cast<size_t>(parts[part].count()), static_cast<int>(part));
  return ranks;
}

std::vector<LayerRange> layers_of_stage(const layers::ModelStages& stages, int stage) {
  std::vector<LayerRange> ranges;
  if (stages.parts.empty()) return ranges;
  for (int part = stage; part < stages.num_parts(); part += stages.count()) {
    const auto [first, last] = stages.layers_of(part, stages.parts.size());
    ranges.push_back({static_cast<int>(first), static_cast<int>(last)});
  }
  return ranges;
}

}  // namespace temper::parallel
