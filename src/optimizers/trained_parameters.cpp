#include "optimizers/trained_parameters.h"

namespace temper::optimizers {

TrainedParameters::TrainedParameters(layers::ParameterStore& store, DType gradients, const Sharing& sharing)
    : store_(&store), sharing_(sharing) {
  store.enable_gradients(gradients);
  for (size_t i = 0; i < store.size(); ++i) {
    const Placement& held = store.layout()[i];
    if (store.spec(i).buffer || !held.is_here()) continue;
    const collectives::Group* const shard = held.is_by_expert() ? sharing_.expert_shard : sharing_.shard;
    const int parts = shard == nullptr ? 1 : shard->size();
    const bool cut = parts > 1 && held.can_be_flat(parts);
    indices_.push_back(i);
    placements_.push_back(cut ? held.flat(parts, shard->rank()) : held);
  }
}

Tensor TrainedParameters::own_part(size_t slot, const Tensor& whole) const {
  return is_sharded(slot) ? placements_[slot].own_elements(whole) : whole;
}

Tensor TrainedParameters::gradient(size_t slot) const {
  const Parameter& parameter = this->parameter(slot);
  const GradTarget found = parameter.grad->target(parameter.value);
  if (!found.accumulate) found.buffer.fill_zero();
  return found.buffer;
}

Tensor TrainedParameters::own_gradient(size_t slot) const {
  return sums_by_layer(slot) ? store_->layer_gradients().sum(indices_[slot]) : own_part(slot, gradient(slot));
}

}  // namespace temper::optimizers
