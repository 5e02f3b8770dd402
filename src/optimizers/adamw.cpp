#include "optimizers/adamw.h"

#include <algorithm>

#include "device/memory_turn.h"

namespace temper::optimizers {
AdamW::AdamW(layers::ParameterStore& parameters, const ops::BoundOps& ops, const AdamWOptions& options,
             const Sharing& sharing)
    : trained_(parameters, options.format.gradients, sharing),
      sums_(trained_),
      update_(ops.at<ops::AdamW>("optimizer")),
      norm_(ops.at<ops::GlobalNorm>("optimizer")) {
  op_.seed = options.seed;
  op_.beta1 = static_cast<float>(options.beta1);
  op_.beta2 = static_cast<float>(options.beta2);
  op_.eps = static_cast<float>(options.eps);
  for (size_t slot = 0; slot < trained_.size(); ++slot) op_.slots.push_back(make_slot(slot, options));
}

ops::AdamW::Slot AdamW::make_slot(size_t slot, const AdamWOptions& options) const {
  const layers::ParameterStore& store = trained_.store();
  const size_t i = trained_.index(slot);
  const layers::StateFormat& format = options.format;
  const Tensor value = store[i].gathered_on_use ? store.own(i) : trained_.own_part(slot, store[i].value);
  ops::AdamW::Slot made;
  made.value = value;
  made.exp_avg = Tensor::zeros(value.shape(), format.moments, MemoryTag::kOptimizer, store.device());
  made.exp_avg_sq = Tensor::zeros(value.shape(), format.moments, MemoryTag::kOptimizer, store.device());
  if (value.dtype() != DType::kF32 && format.master_weights)
    made.master = value.to(DType::kF32, MemoryTag::kOptimizer);
  const bool decays = options.decay_all || store.spec(i).decay;
  made.weight_decay = decays ? static_cast<float>(options.weight_decay) : 0.f;
  if (trained_.is_sharded(slot)) made.first = trained_.shard_of(slot)->rank() * value.numel();
  return made;
}

void AdamW::sum_gradients(collectives::Group& ranks) {
  sums_.begin(ranks);
  sums_.end();
}

// Of slots [first, until).
void AdamW::gather_values(size_t first, size_t until) const {
  for (collectives::Group* const group : {trained_.sharing().shard, trained_.sharing().expert_shard}) {
    if (group == nullptr) continue;
    const collectives::Together together(*group);
    for (size_t slot = first; slot < until; ++slot) {
      if (!trained_.is_sharded(slot) || trained_.shard_of(slot) != group ||
          trained_.parameter(slot).gathered_on_use)
        continue;
      const Tensor& value = trained_.parameter(slot).value;
      group->all_gather_into(trained_.name(slot), op_.slots[slot].value, value.reshape({value.numel()}));
    }
  }
}

void AdamW::set_lr(double lr) { op_.lr.set(static_cast<float>(lr)); }

void AdamW::update(const Tensor& grad_norm, double max_grad_norm) {
  require_awake(trained_.store().device(), MemoryTag::kOptimizer, "an update");
  for (size_t i = 0; i < op_.slots.size(); ++i) op_.slots[i].grad = trained_.own_gradient(i);
  op_.grad_norm = grad_norm;
  op_.max_grad_norm = static_cast<float>(max_grad_norm);
  if (trained_.sharing().shard != nullptr)
    update_in_parts();
  else
    ops::adamw(update_, op_);
  op_.grad_norm = {};
  for (ops::AdamW::Slot& slot : op_.slots) slot.grad = {};
  trained_.store().reset_gradients();
}

// The values of a part are gathered while the next one is updated.
void AdamW::update_in_parts() {
  constexpr int64_t kParts = 16;
  int64_t left = 0;
  for (const ops::AdamW::Slot& slot : op_.slots) left += slot.value.numel();
  const int64_t enough = std::max<int64_t>(1, left / kParts);
  ops::AdamW part = op_;
  for (size_t first = 0; first < op_.slots.size();) {
    part.first_slot = static_cast<int64_t>(first);
    part.slots.clear();
    for (int64_t elements = 0; elements < enough && first < op_.slots.size(); ++first) {
      part.slots.push_back(op_.slots[first]);
      elements += op_.slots[first].value.numel();
    }
    ops::adamw(update_, part);
    for (collectives::Group* group : {trained_.sharing().shard, trained_.sharing().expert_shard})
      if (group != nullptr) group->begin_overlap();
    gather_values(static_cast<size_t>(part.first_slot), first);
  }
  for (collectives::Group* group : {trained_.sharing().shard, trained_.sharing().expert_shard})
    if (group != nullptr) group->end_overlap();
}

// Of a captured update, too, of which the host calls nothing else.
void AdamW::advance() {
  op_.step.set(op_.step + 1);
  trained_.store().changed();
}

void AdamW::step(double lr, const Tensor& grad_norm, double max_grad_norm) {
  set_lr(lr);
  update(grad_norm, max_grad_norm);
  advance();
}

std::vector<PlacedTensor> AdamW::state() const {
  require_awake(trained_.store().device(), MemoryTag::kOptimizer,
                "whoever reads or writes the optimizer's state");
  std::vector<PlacedTensor> tensors;
  const layers::ParameterStore& store = trained_.store();
  for (size_t i = 0; i < store.size(); ++i)
    if (store.spec(i).buffer && store.layout()[i].is_here())
      tensors.push_back({"parameter." + store.spec(i).name, store[i].value, &store.layout()[i]});
  for (size_t i = 0; i < op_.slots.size(); ++i) {
    const ops::AdamW::Slot& slot = op_.slots[i];
    const std::string& name = trained_.name(i);
    const Placement& placement = trained_.placement(i);
    if (slot.master.defined())
      tensors.push_back({"master." + name, slot.master, &placement});
    else
      tensors.push_back({"parameter." + name, slot.value, &placement});
    tensors.push_back({"exp_avg." + name, slot.exp_avg, &placement});
    tensors.push_back({"exp_avg_sq." + name, slot.exp_avg_sq, &placement});
  }
  return tensors;
}

std::vector<PlacedTensor> AdamW::summed_gradients() const {
  std::vector<PlacedTensor> tensors;
  for (size_t slot = 0; slot < trained_.size(); ++slot)
    tensors.push_back({trained_.name(slot),
                       trained_.sums_by_layer(slot)
                           ? trained_.store().layer_gradients().memory(trained_.index(slot))
                           : trained_.own_part(slot, trained_.parameter(slot).grad->grad()),
                       &trained_.placement(slot)});
  return tensors;
}

void AdamW::restored(int64_t steps) {
  op_.step.set(steps + 1);
  for (const ops::AdamW::Slot& slot : op_.slots)
    if (slot.master.defined()) slot.value.copy_from(slot.master);
  gather_values(0, trained_.size());
  trained_.store().changed();
}

}  // namespace temper::optimizers
