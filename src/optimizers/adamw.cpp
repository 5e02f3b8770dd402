#include "optimizers/adamw.h"

namespace temper::optimizers {
namespace {

constexpr int64_t kRoundedTogether = 8;  // elements that share random bits (ops/adamw)

}  // namespace

AdamW::AdamW(layers::ParameterStore& parameters, const ops::BoundOps& ops, const AdamWOptions& options,
             const Sharing& sharing)
    : parameters_(parameters),
      sharing_(sharing),
      update_(ops.at<ops::AdamW>("optimizer")),
      norm_(ops.at<ops::GlobalNorm>("optimizer")) {
  const layers::StateFormat& format = options.format;
  parameters.enable_gradients(format.gradients);
  op_.seed = options.seed;
  op_.beta1 = static_cast<float>(options.beta1);
  op_.beta2 = static_cast<float>(options.beta2);
  op_.eps = static_cast<float>(options.eps);
  const int parts = sharing_.shard == nullptr ? 1 : sharing_.shard->size();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters.spec(i).buffer) continue;
    const Shape& shape = parameters[i].value.shape();
    const bool cut = parts > 1 && shape.numel() % (kRoundedTogether * parts) == 0;
    trained_.push_back(i);
    placements_.push_back(cut ? Placement::flat(shape, parts, sharing_.shard->rank())
                              : parameters.layout()[i]);
    op_.slots.push_back(make_slot(trained_.size() - 1, options));
  }
}

ops::AdamW::Slot AdamW::make_slot(size_t slot, const AdamWOptions& options) const {
  const size_t i = trained_[slot];
  const layers::StateFormat& format = options.format;
  const Tensor value = own_part(slot, parameters_[i].value);
  ops::AdamW::Slot made;
  made.value = value;
  made.exp_avg = Tensor::zeros(value.shape(), format.moments, MemoryTag::kOptimizer, parameters_.device());
  made.exp_avg_sq = Tensor::zeros(value.shape(), format.moments, MemoryTag::kOptimizer, parameters_.device());
  if (value.dtype() != DType::kF32 && format.master_weights)
    made.master = value.to(DType::kF32, MemoryTag::kOptimizer);
  const bool decays = options.decay_all || parameters_.spec(i).decay;
  made.weight_decay = decays ? static_cast<float>(options.weight_decay) : 0.f;
  if (is_sharded(slot)) made.first = sharing_.shard->rank() * value.numel();
  return made;
}

Tensor AdamW::own_part(size_t slot, const Tensor& whole) const {
  return is_sharded(slot) ? placements_[slot].own_elements(whole) : whole;
}

Tensor AdamW::gradient(size_t index) const {
  const GradTarget found = parameters_[index].grad->target(parameters_[index].value);
  // A parameter that no micro-batch reached has a gradient of zero, not what its memory happens to hold.
  if (!found.accumulate) found.buffer.fill_zero();
  return found.buffer;
}

void AdamW::sum_gradients(collectives::Group& ranks) {
  begin_sums(ranks);
  end_sums();
}

void AdamW::begin_sums(collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  summing_ = &ranks;
  left_ = trained_.size();
  // A layer that is computed again holds its gradients only while it is: those that are there already may
  // grow.
  may_grow_unseen_.clear();
  for (const size_t i : trained_)
    may_grow_unseen_.push_back(parameters_[i].grad->filled() && parameters_[i].grad.use_count() == 1);
  for (collectives::Group* group : {summing_, sharing_.shard, sharing_.replicate})
    if (group != nullptr) group->begin_beside();
}

void AdamW::sum_ready() {
  while (summing_ != nullptr && left_ > 0 && is_ready(left_ - 1)) sum_next();
}

void AdamW::end_sums() {
  if (summing_ == nullptr) return;
  while (left_ > 0) sum_next();
  for (collectives::Group* group : {summing_, sharing_.shard, sharing_.replicate})
    if (group != nullptr) group->end_beside();
  summing_ = nullptr;
}

// Closures that will add to it hold it, too.
bool AdamW::is_ready(size_t slot) const {
  const std::shared_ptr<GradSlot>& grad = parameters_[trained_[slot]].grad;
  return grad->filled() && grad.use_count() == 1 && !may_grow_unseen_[slot];
}

void AdamW::sum_next() {
  const size_t slot = --left_;
  const std::string& name = parameters_.spec(trained_[slot]).name;
  const Tensor all = gradient(trained_[slot]);
  if (!is_sharded(slot)) return summing_->all_reduce(name, all);
  const Tensor own = own_part(slot, all);
  sharing_.shard->reduce_scatter_into(name, all.reshape({all.numel()}), own);
  if (sharing_.replicate != nullptr) sharing_.replicate->all_reduce(name, own);
}

// Of a sharded state: the norm of the ranks' norms, and of what all ranks have.
Tensor AdamW::grad_norm() const {
  ops::GlobalNorm own, whole;
  own.device = whole.device = parameters_.device();
  for (size_t slot = 0; slot < trained_.size(); ++slot)
    (is_sharded(slot) ? own : whole).grads.push_back(own_part(slot, gradient(trained_[slot])));
  if (own.grads.empty()) return ops::global_norm(norm_, whole);
  ops::GlobalNorm norms;
  norms.device = parameters_.device();
  norms.grads = {sharing_.shard->all_gather("gradient norm", ops::global_norm(norm_, own))};
  if (!whole.grads.empty()) norms.grads.push_back(ops::global_norm(norm_, whole));
  return ops::global_norm(norm_, norms);
}

void AdamW::gather_values() const {
  if (sharing_.shard == nullptr) return;
  const collectives::Group::Together together(*sharing_.shard);
  for (size_t slot = 0; slot < trained_.size(); ++slot) {
    if (!is_sharded(slot)) continue;
    const Tensor& value = parameters_[trained_[slot]].value;
    sharing_.shard->all_gather_into(parameters_.spec(trained_[slot]).name, op_.slots[slot].value,
                                    value.reshape({value.numel()}));
  }
}

void AdamW::set_lr(double lr) { op_.lr.set(static_cast<float>(lr)); }

void AdamW::update(const Tensor& grad_norm, double max_grad_norm) {
  for (size_t i = 0; i < op_.slots.size(); ++i) op_.slots[i].grad = own_part(i, gradient(trained_[i]));
  op_.grad_norm = grad_norm;
  op_.max_grad_norm = static_cast<float>(max_grad_norm);
  ops::adamw(update_, op_);
  op_.grad_norm = {};
  for (ops::AdamW::Slot& slot : op_.slots) slot.grad = {};
  gather_values();
  parameters_.reset_gradients();
}

// Of a captured update, too, of which the host calls nothing else.
void AdamW::advance() {
  op_.step.set(op_.step + 1);
  parameters_.changed();
}

void AdamW::step(double lr, const Tensor& grad_norm, double max_grad_norm) {
  set_lr(lr);
  update(grad_norm, max_grad_norm);
  advance();
}

std::vector<PlacedTensor> AdamW::state() const {
  std::vector<PlacedTensor> tensors;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_.spec(i).buffer)
      tensors.push_back(
          {"parameter." + parameters_.spec(i).name, parameters_[i].value, &parameters_.layout()[i]});
  for (size_t i = 0; i < op_.slots.size(); ++i) {
    const ops::AdamW::Slot& slot = op_.slots[i];
    const std::string& name = parameters_.spec(trained_[i]).name;
    const Placement& placement = placements_[i];
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
    tensors.push_back({parameters_.spec(trained_[slot]).name,
                       own_part(slot, parameters_[trained_[slot]].grad->grad()), &placements_[slot]});
  return tensors;
}

void AdamW::restored(int64_t steps) {
  op_.step.set(steps + 1);
  for (const ops::AdamW::Slot& slot : op_.slots)
    if (slot.master.defined()) slot.value.copy_from(slot.master);
  gather_values();
  parameters_.changed();
}

}  // namespace temper::optimizers
