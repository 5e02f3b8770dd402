#include "optimizers/gradient_sums.h"

#include <algorithm>
#include <set>

namespace temper::optimizers {

GradientSums::GradientSums(const TrainedParameters& trained) : trained_(trained) {
  const Sharing& sharing = trained.sharing();
  for (size_t slot = 0; slot < trained.size(); ++slot) partial_.push_back(find_partial(slot));
  if (sharing.tensor == nullptr) return;
  std::set<int> numbers;  // the same on all ranks
  for (size_t slot = 0; slot < trained_.size(); ++slot)
    for (const Placement::Shared& shared : partial_[slot]) numbers.insert(shared.ranks);
  numbers.erase(sharing.tensor->size());
  for (const int number : numbers) {
    std::vector<int> ranks;
    for (int i = 0; i < number; ++i) ranks.push_back(sharing.tensor->rank() / number * number + i);
    neighbours_[number] = sharing.tensor->part(fmt::format("tensor {}", number), ranks);
  }
}

std::vector<Placement::Shared> GradientSums::find_partial(size_t slot) const {
  const layers::ParameterStore& store = trained_.store();
  const bool everywhere = store.spec(trained_.index(slot)).of_stream && !store.layout().mesh().sequence;
  return everywhere ? std::vector<Placement::Shared>() : trained_.placement(slot).shared_by_tensor();
}

std::vector<collectives::Group*> GradientSums::groups() const {
  std::vector<collectives::Group*> all;
  for (collectives::Group* group : {ranks_, trained_.sharing().shard, trained_.sharing().replicate,
                                    trained_.sharing().expert_shard, trained_.sharing().experts})
    if (group != nullptr && std::find(all.begin(), all.end(), group) == all.end()) all.push_back(group);
  return all;
}

int GradientSums::other_stage(size_t slot) const {
  const collectives::Group* const ranks = trained_.sharing().stages;
  return ranks == nullptr ? -1
                          : trained_.store().layout().stages().other(trained_.index(slot), ranks->rank());
}

void GradientSums::add_copies() {
  collectives::Group* const ranks = trained_.sharing().stages;
  for (size_t slot = 0; slot < trained_.size(); ++slot) {
    const int other = other_stage(slot);
    if (other < 0) continue;
    const Tensor own = trained_.gradient(slot);
    const Tensor theirs = Tensor::empty(own.shape(), own.dtype(), MemoryTag::kWorkspace, own.device());
    const collectives::Transfer sent{trained_.name(slot), own, other},
        received{trained_.name(slot), theirs, other};
    ranks->pairs().exchange({&sent, 1}, {&received, 1});
    add_in_place(own, theirs);
  }
}

void GradientSums::begin(collectives::Group& ranks) {
  if (ranks.is_alone() && trained_.sharing().tensor == nullptr) return;
  ranks_ = &ranks;
  left_ = trained_.size();
  // A layer that is computed again holds its gradients only while it is: those that are there already may
  // grow. The head's may not: the loss has formed it, and what would add to it holds it.
  may_grow_.clear();
  for (size_t slot = 0; slot < trained_.size(); ++slot) {
    const std::shared_ptr<GradSlot>& grad = trained_.parameter(slot).grad;
    may_grow_.push_back(trained_.is_in_layer(slot) && grad->filled() && grad.use_count() == 1);
  }
  for (collectives::Group* group : groups()) group->begin_overlap();
}

void GradientSums::sum_ready() {
  while (ranks_ != nullptr && left_ > 0 && is_ready(left_ - 1)) sum_next();
}

void GradientSums::end() {
  if (ranks_ == nullptr) return add_copies();
  while (left_ > 0) sum_next();
  add_copies();
  sum_deferred();
  for (collectives::Group* group : groups()) group->end_overlap();
  ranks_ = nullptr;
}

// What ranks that backward uses, too, have parts of, what another stage adds to, and what layers have summed:
// that is known when backward has ended.
void GradientSums::sum_deferred() {
  for (size_t slot = trained_.size(); slot-- > 0;) {
    if (!is_deferred(slot)) continue;
    if (trained_.sums_by_layer(slot)) {
      if (trained_.sharing().replicate != nullptr)
        trained_.sharing().replicate->all_reduce(trained_.name(slot), trained_.own_gradient(slot));
      continue;
    }
    const Tensor all = trained_.gradient(slot);
    for (const Placement::Shared& part : partial_[slot]) {
      collectives::Group& group = part.ranks == trained_.sharing().tensor->size()
                                      ? *trained_.sharing().tensor
                                      : *neighbours_.at(part.ranks);
      group.all_reduce(trained_.name(slot), all.reshape({all.numel()}).narrow(0, part.first, part.count));
    }
    sum(slot);
  }
}

// Closures that will add to it hold it, too.
bool GradientSums::is_ready(size_t slot) const {
  if (is_deferred(slot)) return true;
  const std::shared_ptr<GradSlot>& grad = trained_.parameter(slot).grad;
  return grad->filled() && grad.use_count() == 1 && !may_grow_[slot];
}

void GradientSums::sum_next() {
  const size_t slot = --left_;
  if (!is_deferred(slot)) sum(slot);
}

void GradientSums::sum(size_t slot) {
  const std::string& name = trained_.name(slot);
  const Tensor all = trained_.gradient(slot);
  if (!trained_.is_sharded(slot)) {
    collectives::Group* const same = trained_.is_by_expert(slot) ? trained_.sharing().experts : ranks_;
    if (same != nullptr) same->all_reduce(name, all);
    return;
  }
  const Tensor own = trained_.own_part(slot, all);
  trained_.shard_of(slot)->reduce_scatter_into(name, all.reshape({all.numel()}), own);
  if (trained_.sharing().replicate != nullptr) trained_.sharing().replicate->all_reduce(name, own);
}

}  // namespace temper::optimizers
