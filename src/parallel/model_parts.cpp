#include "parallel/model_parts.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace temper::parallel {

namespace {

// A layer's matrix multiplications grow with the square of the hidden size, what it reads and writes between
// them (norms, rotary, activations, the residual stream) with the hidden size: of this size both take as long
// on a GPU. On a CPU, whose memory is faster compared with its arithmetic, operations alone count. Of dense
// layers with hidden sizes from 1,024 to 5,120 on an H200 in bfloat16 this gives the ratio of the times of a
// layer and of the head to 17 % (temper plan --measure), where operations alone are wrong by up to 58 %.
constexpr double kHiddenOfEqualTimes = 1000;

// Of a forward pass over one document of a usual length. An embedding reads rows, which costs next to
// nothing.
LayerCosts layer_costs(const layers::DecoderConfig& model, Device device) {
  constexpr std::array<int32_t, 1> kTokens{4096};
  const double slower =
      is_apart(device) ? 1 + kHiddenOfEqualTimes / static_cast<double>(model.hidden_size) : 1;
  LayerCosts costs{.layers = {}, .head = layers::forward_flops(model, kTokens)};
  for (const layers::Block& block : model.blocks) {
    const double flops = block.mixer->flops(kTokens) + block.channel->flops(kTokens[0]);
    costs.layers.push_back(slower * flops);
    costs.head -= flops;
  }
  return costs;
}

}  // namespace

layers::ModelRanks with_parts(layers::ModelRanks ranks, const layers::DecoderConfig& model, int chunks,
                              Device device) {
  layers::ModelStages& stages = ranks.stages;
  if (stages.count() == 1) return ranks;
  const std::vector<LayerRange> parts = divide_layers(layer_costs(model, device), stages.count(), chunks);
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

// Parameters that are of no layer are the embedding's in the first part, others in the last one.
int first_trained_part(const layers::Adapter& adapter, const layers::ModelStages& stages) {
  if (stages.count() == 1) return 0;
  const layers::ParameterStore& parameters = adapter.parameters();
  int first = stages.num_parts() - 1;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (const auto layer = parameters.spec(i).layer)
      first = std::min(first, stages.parts[static_cast<size_t>(*layer)]);
    else if (parameters.layout().stages().of[i] == 0)
      first = 0;
  }
  return first;
}

PipelineCosts pipeline_costs(const layers::DecoderConfig& model, int stages, int chunks,
                             const PassKind& passes, Device device) {
  const LayerCosts costs = layer_costs(model, device);
  PipelineCosts all;
  for (const LayerRange& part : divide_layers(costs, stages, chunks)) {
    const double forward =
        std::accumulate(costs.layers.begin() + part.first, costs.layers.begin() + part.last, 0.0);
    all.parts.push_back({.forward = forward,
                         .backward_input = passes.again ? 2 * forward : forward,
                         .backward_weight = passes.frozen ? 0 : forward});
  }
  all.parts.back().forward += (passes.frozen ? 2 : 3) * costs.head;
  return all;
}

}  // namespace temper::parallel
