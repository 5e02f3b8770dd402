#include "layers/parameters/sharded_layers.h"

#include "autograd/later_gradients.h"
#include "base/error.h"

namespace temper::layers {
namespace {

// The whole gradient of a parameter, which the store forgets; zeros where no pass reached it.
Tensor take_gradient(const Parameter& parameter) {
  const GradTarget found = parameter.grad->target(parameter.value);
  if (!found.accumulate) found.buffer.fill_zero();
  parameter.grad->release();
  return found.buffer;
}

}  // namespace

ShardedLayers::ShardedLayers(ParameterStore& parameters, const ModelRanks& ranks, size_t layers)
    : parameters_(parameters),
      gathers_(ranks.mesh.shard_level == 3),
      layers_(layers),
      there_(layers, !gathers_) {
  for (collectives::Group* const group : {ranks.shard, ranks.expert_shard})
    if (group != nullptr)
      for (std::vector<Shares>& shares : layers_) shares.push_back({group, {}});
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters.layout().sums_by_layer(i)) continue;
    const collectives::Group* const group =
        parameters.layout()[i].is_by_expert() ? ranks.expert_shard : ranks.shard;
    for (Shares& shares : layers_[static_cast<size_t>(*parameters.spec(i).layer)])
      if (shares.group == group) shares.parameters.push_back(i);
  }
}

template <class F>
void ShardedLayers::overlap(size_t layer, const F& f) {
  for (const Shares& shares : layers_[layer]) {
    if (shares.parameters.empty()) continue;
    shares.group->begin_overlap();
    const collectives::Together together(*shares.group);
    for (const size_t parameter : shares.parameters) f(*shares.group, parameter);
  }
}

void ShardedLayers::settle() {
  for (const Shares& shares : layers_.front()) shares.group->end_overlap();
  for (const DeferredSum& late : deferred_)
    add_in_place(parameters_.layer_gradients().sum(late.parameter), late.sum);
  deferred_.clear();
  in_use_.clear();
}

void ShardedLayers::fetch(int64_t layer) {
  if (!gathers_ || layer < 0 || layer >= std::ssize(layers_) || there_[static_cast<size_t>(layer)]) return;
  there_[static_cast<size_t>(layer)] = true;
  overlap(static_cast<size_t>(layer), [&](collectives::Group& group, size_t parameter) {
    const Tensor value = parameters_.make_value(parameter);
    group.all_gather_into(parameters_.spec(parameter).name, parameters_.own(parameter),
                          value.reshape({value.numel()}));
  });
}

void ShardedLayers::release(int64_t layer) {
  if (!gathers_ || layer >= std::ssize(layers_) || !there_[static_cast<size_t>(layer)]) return;
  there_[static_cast<size_t>(layer)] = false;
  for (const Shares& shares : layers_[static_cast<size_t>(layer)])
    for (const size_t parameter : shares.parameters) parameters_.drop_value(parameter);
}

// What is summed stays as it is until the ranks are done with it.
void ShardedLayers::scatter(size_t layer) {
  overlap(layer, [&](collectives::Group& group, size_t parameter) {
    if (parameters_[parameter].grad == nullptr) return;
    const Tensor whole = take_gradient(parameters_[parameter]);
    LayerGradients& sums = parameters_.layer_gradients();
    const bool first = !sums.has(parameter);
    const Tensor own = sums.memory(parameter);
    const Tensor sum =
        first ? own : Tensor::empty(own.shape(), own.dtype(), MemoryTag::kWorkspace, own.device());
    group.reduce_scatter_into(parameters_.spec(parameter).name, whole.reshape({whole.numel()}), sum);
    in_use_.push_back(whole);
    if (first)
      sums.set(parameter);
    else
      deferred_.push_back({parameter, sum});
  });
}

Var ShardedLayers::begin(Tape& tape, size_t layer, const Var& x, bool again) {
  const auto place = static_cast<int64_t>(layer);
  fetch(place);
  settle();
  fetch(again ? place - 1 : place + 1);
  // Recorded before all else of the layer, it comes after all else in backward.
  return tape.record(x.value, {&x}, [this, layer, slot = x.slot](const Tensor& grad) {
    // Behind the layer's own gradients, which may be left for later.
    LaterGradients::leave_or_compute(LaterGradients::current(), [this, layer] {
      settle();
      scatter(layer);
    });
    release(static_cast<int64_t>(layer));
    slot->add(grad);
  });
}

Var ShardedLayers::end(Tape& tape, size_t layer, const Var& y) {
  const auto place = static_cast<int64_t>(layer);
  release(place);
  return tape.record(y.value, {&y}, [this, place, slot = y.slot](const Tensor& grad) {
    fetch(place);
    settle();
    release(place + 1);  // a frozen layer is released here only
    fetch(place - 1);
    slot->add(grad);
  });
}

Tensor gathered_value(const ParameterStore& parameters, const ModelRanks& ranks, std::string_view name) {
  const size_t index = parameters.index_of(name);
  if (!parameters[index].gathered_on_use) return parameters.value(name);
  const Placement& placement = parameters.layout()[index];
  const Tensor& own = parameters.own(index);
  const Tensor whole =
      Tensor::empty(placement.unsharded().own(), own.dtype(), MemoryTag::kWorkspace, own.device());
  (placement.is_by_expert() ? ranks.expert_shard : ranks.shard)
      ->all_gather_into(name, own, whole.reshape({whole.numel()}));
  return whole;
}

}  // namespace temper::layers
