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

}  // namespace temper::layers
