#include "optimizers/adamw.h"

namespace temper::optimizers {

AdamW::AdamW(layers::ParameterStore& parameters, const ops::BoundOps& ops, const AdamWOptions& options)
    : parameters_(parameters),
      update_(ops.at<ops::AdamW>("optimizer")),
      norm_(ops.at<ops::GlobalNorm>("optimizer")) {
  const layers::StateFormat& format = options.format;
  parameters.enable_gradients(format.gradients);
  op_.seed = options.seed;
  op_.beta1 = static_cast<float>(options.beta1);
  op_.beta2 = static_cast<float>(options.beta2);
  op_.eps = static_cast<float>(options.eps);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameters.spec(i).buffer) continue;
    trained_.push_back(i);
    const Shape& shape = parameter.value.shape();
    ops::AdamW::Slot slot;
    slot.value = parameter.value;
    slot.exp_avg = Tensor::zeros(shape, format.moments, MemoryTag::kOptimizer, parameters.device());
    slot.exp_avg_sq = Tensor::zeros(shape, format.moments, MemoryTag::kOptimizer, parameters.device());
    if (parameter.value.dtype() != DType::kF32 && format.master_weights)
      slot.master = parameter.value.to(DType::kF32, MemoryTag::kOptimizer);
    const bool decays = options.decay_all || parameters.spec(i).decay;
    slot.weight_decay = decays ? static_cast<float>(options.weight_decay) : 0.f;
    op_.slots.push_back(std::move(slot));
  }
}

Tensor AdamW::gradient(size_t index) const {
  const GradTarget found = parameters_[index].grad->target(parameters_[index].value);
  // A parameter that no micro-batch reached has a gradient of zero, not what its memory happens to hold.
  if (!found.accumulate) found.buffer.fill_zero();
  return found.buffer;
}

void AdamW::sum_gradients(collectives::Group& ranks) const {
  if (ranks.is_alone()) return;
  for (const size_t i : trained_) ranks.all_reduce(parameters_.spec(i).name, gradient(i));
}

Tensor AdamW::grad_norm() const {
  ops::GlobalNorm norm;
  norm.device = parameters_.device();
  for (const size_t i : trained_) norm.grads.push_back(gradient(i));
  return ops::global_norm(norm_, norm);
}

void AdamW::set_lr(double lr) { op_.lr.set(static_cast<float>(lr)); }

void AdamW::update(const Tensor& grad_norm, double max_grad_norm) {
  for (size_t i = 0; i < op_.slots.size(); ++i) op_.slots[i].grad = gradient(trained_[i]);
  op_.grad_norm = grad_norm;
  op_.max_grad_norm = static_cast<float>(max_grad_norm);
  ops::adamw(update_, op_);
  op_.grad_norm = {};
  for (ops::AdamW::Slot& slot : op_.slots) slot.grad = {};
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
    const Placement& placement = parameters_.layout()[trained_[i]];
    if (slot.master.defined())
      tensors.push_back({"master." + name, slot.master, &placement});
    else
      tensors.push_back({"parameter." + name, slot.value, &placement});
    tensors.push_back({"exp_avg." + name, slot.exp_avg, &placement});
    tensors.push_back({"exp_avg_sq." + name, slot.exp_avg_sq, &placement});
  }
  return tensors;
}

void AdamW::restored(int64_t steps) {
  op_.step.set(steps + 1);
  for (const ops::AdamW::Slot& slot : op_.slots)
    if (slot.master.defined()) slot.value.copy_from(slot.master);
  parameters_.changed();
}

}  // namespace temper::optimizers
