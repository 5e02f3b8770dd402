#include "layers/paged_states.h"

#include <algorithm>

namespace temper::layers {

bool PagedStates::has_slots() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const auto& layer) { return layer->has_slots(); });
}

void PagedStates::clear_slot(int64_t slot) const {
  for (const auto& layer : layers_) layer->clear_slot(slot);
}

void PagedStates::copy_slot(int64_t from, int64_t to) const {
  for (const auto& layer : layers_) layer->copy_slot(from, to);
}

void PagedStates::grow(int64_t pages) {
  for (const auto& layer : layers_) layer->grow(pages);
  sizes_.pages = pages;
}

Tensor with_more_rows(const Tensor& held, int64_t rows) {
  if (held.dim(0) >= rows) return held;  // other layers had no memory when this one grew
  Shape shape = held.shape();
  shape[0] = rows;
  const Tensor all = Tensor::empty(shape, held.dtype(), MemoryTag::kKvCache, held.device());
  all.narrow(0, 0, held.dim(0)).copy_from(held);
  return all;
}

}  // namespace temper::layers
