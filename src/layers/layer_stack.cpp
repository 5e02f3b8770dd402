#include "layers/layer_stack.h"

#include <algorithm>

#include "layers/decoder_modules.h"
#include "layers/glue.h"

namespace temper::layers {

LayerStack::LayerStack(const DecoderConfig& config, ParameterStore& parameters, const ModelRanks& ranks,
                       const std::function<Binding(const std::string& scope)>& binding) {
  for (size_t i = 0; i < config.blocks.size(); ++i) {
    const Binding of_layer = binding(scope_of(i));
    if (ranks.stages.has_layer(i))
      layers_.emplace_back(std::in_place, of_layer, config.blocks[i].on_tensor_ranks(ranks.tensor_ranks()),
                           config);
    else if (layers_.emplace_back(); config.blocks[i].channel->routing() != nullptr)
      of_layer.routers.add();  // all stages count the same routers
    router_layers_.resize(of_layer.routers.count(), i);
  }
  if (ranks.mesh.shard_level > 1 && (ranks.shard != nullptr || ranks.expert_shard != nullptr))
    sharded_ = std::make_unique<ShardedLayers>(parameters, ranks, layers_.size());
}

Stream LayerStack::forward(Tape& tape, Stream stream, const Pass& pass, const ModelStages::Layers& layers,
                           const Options& options) const {
  for (size_t i = layers.first; i < layers.last; ++i) {
    if (options.checkpoint && options.hidden_states != nullptr)
      options.hidden_states->push_back(stream.x.value);
    stream = options.checkpoint ? checkpointed(tape, i, stream, pass)
                                : through(tape, i, stream, pass, options.hidden_states, false);
    if (options.behind) stream = options.behind(i, std::move(stream));
  }
  return stream;
}

Stream LayerStack::through(Tape& tape, size_t index, const Stream& stream, const Pass& pass,
                           std::vector<Tensor>* hidden_states, bool again) const {
  if (sharded_ == nullptr) return layers_[index]->forward(tape, index, stream, pass, hidden_states);
  const Var x = sharded_->begin(tape, index, stream.x, again);
  Stream end = layers_[index]->forward(tape, index, {x, stream.branch}, pass, hidden_states);
  if (!again) end.branch = sharded_->end(tape, index, end.branch);
  return end;
}

// Adds at its end, so that the tape keeps one tensor between layers.
Stream LayerStack::checkpointed(Tape& tape, size_t index, const Stream& stream, const Pass& pass) const {
  // Backward runs this again after `pass` is gone: it keeps its own copy of the handles.
  const auto body = [this, index, pass](Tape& inner, const Var& start) {
    const Stream end = through(inner, index, {start, {}}, pass, nullptr, inner.recording());
    std::vector<Var> results{residual_add(inner, end.x, end.branch)};
    for (RouterTrace::Part* part : router_parts(index, pass)) results.push_back(part->sums);
    return results;
  };
  const std::vector<Var> results = tape.checkpoint_many(stream.x, body);
  // Those of the body belong to its own tape.
  auto result = results.begin();
  for (RouterTrace::Part* part : router_parts(index, pass)) part->sums = *++result;
  return {results.front(), {}};
}

std::vector<RouterTrace::Part*> LayerStack::router_parts(size_t index, const Pass& pass) const {
  std::vector<RouterTrace::Part*> parts;
  if (pass.routers == nullptr) return parts;
  for (size_t i = 0; i < router_layers_.size(); ++i)
    if (router_layers_[i] == index)
      for (RouterTrace::Part& part : pass.routers->routers[i].parts) parts.push_back(&part);
  return parts;
}

bool LayerStack::decodes_as_prompts() const {
  return std::ranges::all_of(layers_, [](const std::optional<ResidualLayer>& layer) {
    return !layer || layer->mixer().decodes_as_prompts();
  });
}

bool LayerStack::batches_on_device() const {
  return std::ranges::all_of(layers_, [](const std::optional<ResidualLayer>& layer) {
    return !layer || (layer->mixer().batches_on_device() && layer->channel().batches_on_device());
  });
}

std::string_view LayerStack::asks_host() const {
  for (const std::optional<ResidualLayer>& layer : layers_) {
    if (!layer) continue;
    for (const std::string_view op : {layer->mixer().asks_host(), layer->channel().asks_host()})
      if (!op.empty()) return op;
  }
  return {};
}

}  // namespace temper::layers
