#include "parallel/model_parts.h"

#include <array>

#include "parallel/pipeline/layer_parts.h"

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

}  // namespace temper::parallel
