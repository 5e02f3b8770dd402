#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "layers/parameters/sharded_layers.h"
#include "layers/residual_layer.h"

namespace temper::layers {

// The layers of a decoder in their order, on the residual stream: also where their matrices are gathered for
// each pass, and where they are computed again in the backward pass.
class LayerStack {
 public:
  // `binding` gives that of a layer by its scope.
  LayerStack(const DecoderConfig& config, ParameterStore& parameters, const ModelRanks& ranks,
             const std::function<Binding(const std::string& scope)>& binding);
  LayerStack(const LayerStack&) = delete;  // backward passes know where it is
  LayerStack& operator=(const LayerStack&) = delete;

  // What the caller does with the stream behind a layer.
  using Behind = std::function<Stream(size_t layer, Stream stream)>;
  struct Options {
    bool checkpoint =
        false;  // each layer is computed again in the backward pass: its activations are not kept
    std::vector<Tensor>* hidden_states = nullptr;  // gets the input of each layer, [tokens, hidden]; null: no
    Behind behind = {};                            // empty: nothing
  };
  // Through these layers, which are here.
  Stream forward(Tape& tape, Stream stream, const Pass& pass, const ModelStages::Layers& layers,
                 const Options& options) const;
  Stream forward(Tape& tape, Stream stream, const Pass& pass, const ModelStages::Layers& layers) const {
    return forward(tape, std::move(stream), pass, layers, Options());
  }

  // Of all layers that are here, as of BoundMixer and BoundChannel.
  bool decodes_as_prompts() const;
  bool batches_on_device() const;
  std::string_view asks_host() const;

  // The layer of each router, in the order of RouterSet.
  const std::vector<size_t>& router_layers() const { return router_layers_; }
  // Of a layer; null: it is on another stage.
  const BoundChannel* channel(size_t layer) const {
    return layers_[layer] ? &layers_[layer]->channel() : nullptr;
  }
  // Gradients of all passes are there after this (ShardedLayers).
  void settle() const {
    if (sharded_) sharded_->settle();
  }

 private:
  // Through one layer, whose matrices may come and go. `again`: its backward pass follows at once.
  Stream through(Tape& tape, size_t index, const Stream& stream, const Pass& pass,
                 std::vector<Tensor>* hidden_states, bool again) const;
  Stream checkpointed(Tape& tape, size_t index, const Stream& stream, const Pass& pass) const;
  // What the pass records of the layer's routers.
  std::vector<RouterTrace::Part*> router_parts(size_t index, const Pass& pass) const;

  std::vector<std::optional<ResidualLayer>> layers_;  // none: it is on another stage
  std::vector<size_t> router_layers_;
  std::unique_ptr<ShardedLayers> sharded_;  // null: all that layers need is always there
};

}  // namespace temper::layers
