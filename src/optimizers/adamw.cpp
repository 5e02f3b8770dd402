#include "optimizers/adamw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "base/threads.h"
#include "device/memory_turn.h"

namespace temper::optimizers {
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
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters.spec(i).buffer) continue;
    const Placement& held = parameters.layout()[i];
    const collectives::Group* const shard = held.is_by_expert() ? sharing_.expert_shard : sharing_.shard;
    const int parts = shard == nullptr ? 1 : shard->size();
    const bool cut = parts > 1 && held.can_be_flat(parts);
    trained_.push_back(i);
    placements_.push_back(cut ? held.flat(parts, shard->rank()) : held);
    op_.slots.push_back(make_slot(trained_.size() - 1, options));
    partial_.push_back(find_partial(trained_.size() - 1));
  }
  if (sharing_.tensor == nullptr) return;
  std::set<int> numbers;  // the same on all ranks
  for (size_t slot = 0; slot < trained_.size(); ++slot)
    for (const Placement::Shared& shared : partial_[slot]) numbers.insert(shared.ranks);
  numbers.erase(sharing_.tensor->size());
  for (const int number : numbers) {
    std::vector<int> ranks;
    for (int i = 0; i < number; ++i) ranks.push_back(sharing_.tensor->rank() / number * number + i);
    neighbours_[number] = sharing_.tensor->part(fmt::format("tensor {}", number), ranks);
  }
}

std::vector<Placement::Shared> AdamW::find_partial(size_t slot) const {
  const bool everywhere = parameters_.spec(trained_[slot]).of_stream && !parameters_.layout().mesh().sequence;
  return everywhere ? std::vector<Placement::Shared>() : placements_[slot].shared_by_tensor();
}

std::vector<collectives::Group*> AdamW::groups() const {
  std::vector<collectives::Group*> all;
  for (collectives::Group* group :
       {summing_, sharing_.shard, sharing_.replicate, sharing_.expert_shard, sharing_.experts})
    if (group != nullptr && std::find(all.begin(), all.end(), group) == all.end()) all.push_back(group);
  return all;
}

ops::AdamW::Slot AdamW::make_slot(size_t slot, const AdamWOptions& options) const {
  const size_t i = trained_[slot];
  const layers::StateFormat& format = options.format;
  const Tensor value =
      parameters_[i].comes_and_goes ? parameters_.own(i) : own_part(slot, parameters_[i].value);
  ops::AdamW::Slot made;
  made.value = value;
  made.exp_avg = Tensor::zeros(value.shape(), format.moments, MemoryTag::kOptimizer, parameters_.device());
  made.exp_avg_sq = Tensor::zeros(value.shape(), format.moments, MemoryTag::kOptimizer, parameters_.device());
  if (value.dtype() != DType::kF32 && format.master_weights)
    made.master = value.to(DType::kF32, MemoryTag::kOptimizer);
  const bool decays = options.decay_all || parameters_.spec(i).decay;
  made.weight_decay = decays ? static_cast<float>(options.weight_decay) : 0.f;
  if (is_sharded(slot)) made.first = shard_of(slot)->rank() * value.numel();
  return made;
}

Tensor AdamW::own_part(size_t slot, const Tensor& whole) const {
  return is_sharded(slot) ? placements_[slot].own_elements(whole) : whole;
}

Tensor AdamW::own_gradient(size_t slot) const {
  const size_t i = trained_[slot];
  return sums_by_layer(slot) ? parameters_.own_gradient(i) : own_part(slot, gradient(i));
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
  if (ranks.is_alone() && sharing_.tensor == nullptr) return;
  summing_ = &ranks;
  left_ = trained_.size();
  // A layer that is computed again holds its gradients only while it is: those that are there already may
  // grow. The head's may not: the loss has formed it, and what would add to it holds it.
  may_grow_unseen_.clear();
  for (const size_t i : trained_)
    may_grow_unseen_.push_back(parameters_.spec(i).name.starts_with("layers.") &&
                               parameters_[i].grad->filled() && parameters_[i].grad.use_count() == 1);
  for (collectives::Group* group : groups()) group->begin_beside();
}

void AdamW::sum_ready() {
  while (summing_ != nullptr && left_ > 0 && is_ready(left_ - 1)) sum_next();
}

void AdamW::end_sums() {
  if (summing_ == nullptr) return;
  while (left_ > 0) sum_next();
  sum_late();
  for (collectives::Group* group : groups()) group->end_beside();
  summing_ = nullptr;
}

// What ranks that backward uses, too, have parts of, and what layers have summed: that is known when backward
// has ended.
void AdamW::sum_late() {
  for (size_t slot = trained_.size(); slot-- > 0;) {
    if (!sums_late(slot)) continue;
    if (sums_by_layer(slot)) {
      if (sharing_.replicate != nullptr)
        sharing_.replicate->all_reduce(parameters_.spec(trained_[slot]).name, own_gradient(slot));
      continue;
    }
    const Tensor all = gradient(trained_[slot]);
    for (const Placement::Shared& part : partial_[slot]) {
      collectives::Group& group =
          part.ranks == sharing_.tensor->size() ? *sharing_.tensor : *neighbours_.at(part.ranks);
      group.all_reduce(parameters_.spec(trained_[slot]).name,
                       all.reshape({all.numel()}).narrow(0, part.first, part.count));
    }
    sum_slot(slot);
  }
}

// Closures that will add to it hold it, too.
bool AdamW::is_ready(size_t slot) const {
  if (sums_late(slot)) return true;
  const std::shared_ptr<GradSlot>& grad = parameters_[trained_[slot]].grad;
  return grad->filled() && grad.use_count() == 1 && !may_grow_unseen_[slot];
}

void AdamW::sum_next() {
  const size_t slot = --left_;
  if (!sums_late(slot)) sum_slot(slot);
}

void AdamW::sum_slot(size_t slot) {
  const std::string& name = parameters_.spec(trained_[slot]).name;
  const Tensor all = gradient(trained_[slot]);
  if (!is_sharded(slot)) {
    collectives::Group* const same = is_by_expert(slot) ? sharing_.experts : summing_;
    if (same != nullptr) same->all_reduce(name, all);
    return;
  }
  const Tensor own = own_part(slot, all);
  shard_of(slot)->reduce_scatter_into(name, all.reshape({all.numel()}), own);
  if (sharing_.replicate != nullptr) sharing_.replicate->all_reduce(name, own);
}

void AdamW::add_counted(size_t slot, std::vector<Tensor>& gradients) const {
  const Tensor own = own_gradient(slot);
  const int64_t first = is_sharded(slot) ? shard_of(slot)->rank() * own.numel() : 0;
  std::vector<std::pair<int64_t, int64_t>> counted;  // elements of `own`, from and until
  int64_t at = 0;
  for (const Placement::Shared& part : placements_[slot].shared_by_tensor()) {
    if (part.is_first) continue;
    const int64_t from = std::clamp<int64_t>(part.first - first, 0, own.numel()),
                  until = std::clamp<int64_t>(part.first + part.count - first, 0, own.numel());
    counted.emplace_back(at, from);
    at = until;
  }
  if (at == 0 && counted.empty()) return gradients.push_back(own);
  counted.emplace_back(at, own.numel());
  const Tensor row = own.reshape({own.numel()});
  for (const auto& [from, until] : counted)
    if (from < until) gradients.push_back(row.narrow(0, from, until - from));
}

namespace {

// Σ g² in double, over fixed pieces in a fixed order.
double sum_of_squares(const std::vector<Tensor>& gradients) {
  constexpr int64_t kPiece = 1 << 15, kLanes = 8;  // sums of their own, side by side
  double all = 0;
  for (const Tensor& gradient : gradients) {
    std::vector<double> sums(static_cast<size_t>((gradient.numel() + kPiece - 1) / kPiece));
    visit_float(gradient.dtype(), [&]<class T>() {
      parallel_for(std::ssize(sums), [&](int64_t piece) {
        const T* const from = gradient.data<T>() + piece * kPiece;
        const int64_t count = std::min(kPiece, gradient.numel() - piece * kPiece);
        std::array<double, kLanes> lanes{};
        for (int64_t i = 0; i < count; ++i) {
          const double g = static_cast<float>(from[i]);
          lanes[static_cast<size_t>(i % kLanes)] += g * g;
        }
        sums[static_cast<size_t>(piece)] = std::accumulate(lanes.begin(), lanes.end(), 0.0);
      });
    });
    all = std::accumulate(sums.begin(), sums.end(), all);
  }
  return all;
}

}  // namespace

// What ranks share is added up in double, and rounded once: the norm has the same bits, but for one in many
// millions, whoever has which part. Other devices than the host send two numbers in the place of a double.
Tensor AdamW::grad_norm() const {
  const auto norm_of = [&](std::vector<Tensor> gradients, bool in_two) {
    ops::GlobalNorm op;
    op.in_two = in_two;
    op.device = parameters_.device();
    op.grads = std::move(gradients);
    return ops::global_norm(norm_, op);
  };
  enum Kind { kWhole, kSharded, kExperts, kShardedExperts, kKinds };
  std::array<std::vector<Tensor>, kKinds> gradients;
  std::array<bool, kKinds> exist{};
  for (size_t slot = 0; slot < trained_.size(); ++slot) {
    const int kind = (is_sharded(slot) ? kSharded : kWhole) + (is_by_expert(slot) ? kExperts : kWhole);
    add_counted(slot, gradients[static_cast<size_t>(kind)]);
    exist[static_cast<size_t>(kind)] = true;
  }
  const bool alone = sharing_.shard == nullptr && sharing_.expert == nullptr && sharing_.tensor == nullptr;
  if (!alone && parameters_.device().type == DeviceType::kCpu) {
    const auto over = [](collectives::Group* group, double own) {
      return group == nullptr ? own : group->sum("gradient norm", own);
    };
    const double shared = over(sharing_.shard, sum_of_squares(gradients[kSharded])),
                 experts = over(sharing_.expert,
                                sum_of_squares(gradients[kExperts]) +
                                    over(sharing_.expert_shard, sum_of_squares(gradients[kShardedExperts])));
    const double sum = over(sharing_.tensor, sum_of_squares(gradients[kWhole]) + shared + experts);
    return Tensor::from(std::vector<float>{static_cast<float>(std::sqrt(sum))});
  }
  const auto over = [&](collectives::Group* group, const Tensor& own) {
    return group == nullptr ? own : norm_of({group->all_gather("gradient norm", own)}, true);
  };
  if (alone) return norm_of(gradients[kWhole], false);
  const auto of = [&](Kind kind) { return norm_of(gradients[kind], true); };
  std::vector<Tensor> norms;
  if (exist[kSharded]) norms.push_back(over(sharing_.shard, of(kSharded)));
  if (exist[kExperts]) norms.push_back(over(sharing_.expert, of(kExperts)));
  if (exist[kShardedExperts])
    norms.push_back(over(sharing_.expert, over(sharing_.expert_shard, of(kShardedExperts))));
  if (exist[kWhole] || norms.empty()) norms.push_back(of(kWhole));
  return norm_of({over(sharing_.tensor, norm_of(norms, true))}, false);
}

// Of slots [first, until).
void AdamW::gather_values(size_t first, size_t until) const {
  for (collectives::Group* const group : {sharing_.shard, sharing_.expert_shard}) {
    if (group == nullptr) continue;
    const collectives::Group::Together together(*group);
    for (size_t slot = first; slot < until; ++slot) {
      if (!is_sharded(slot) || shard_of(slot) != group || parameters_[trained_[slot]].comes_and_goes)
        continue;
      const Tensor& value = parameters_[trained_[slot]].value;
      group->all_gather_into(parameters_.spec(trained_[slot]).name, op_.slots[slot].value,
                             value.reshape({value.numel()}));
    }
  }
}

void AdamW::set_lr(double lr) { op_.lr.set(static_cast<float>(lr)); }

void AdamW::update(const Tensor& grad_norm, double max_grad_norm) {
  require_awake(parameters_.device(), MemoryTag::kOptimizer, "an update");
  for (size_t i = 0; i < op_.slots.size(); ++i) op_.slots[i].grad = own_gradient(i);
  op_.grad_norm = grad_norm;
  op_.max_grad_norm = static_cast<float>(max_grad_norm);
  if (sharing_.shard != nullptr)
    update_in_parts();
  else
    ops::adamw(update_, op_);
  op_.grad_norm = {};
  for (ops::AdamW::Slot& slot : op_.slots) slot.grad = {};
  parameters_.reset_gradients();
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
    for (collectives::Group* group : {sharing_.shard, sharing_.expert_shard})
      if (group != nullptr) group->begin_beside();
    gather_values(static_cast<size_t>(part.first_slot), first);
  }
  for (collectives::Group* group : {sharing_.shard, sharing_.expert_shard})
    if (group != nullptr) group->end_beside();
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
  require_awake(parameters_.device(), MemoryTag::kOptimizer, "whoever reads or writes the optimizer's state");
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
                       sums_by_layer(slot) ? parameters_.own_gradient_memory(trained_[slot])
                                           : own_part(slot, parameters_[trained_[slot]].grad->grad()),
                       &placements_[slot]});
  return tensors;
}

void AdamW::restored(int64_t steps) {
  op_.step.set(steps + 1);
  for (const ops::AdamW::Slot& slot : op_.slots)
    if (slot.master.defined()) slot.value.copy_from(slot.master);
  gather_values(0, trained_.size());
  parameters_.changed();
}

}  // namespace temper::optimizers
