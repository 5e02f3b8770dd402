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

SlotRows::SlotRows(const Tensor& all, std::span<const int32_t> slots) : all_(all) {
  const bool together = std::adjacent_find(slots.begin(), slots.end(),
                                           [](int32_t a, int32_t b) { return b != a + 1; }) == slots.end();
  const auto count = static_cast<int64_t>(slots.size());
  if (together) {
    rows_ = all.narrow(0, slots.empty() ? 0 : slots.front(), count);
    return;
  }
  copied_.assign(slots.begin(), slots.end());
  Shape shape = all.shape();
  shape[0] = count;
  rows_ = Tensor::empty(shape, all.dtype(), MemoryTag::kWorkspace, all.device());
  for (int64_t i = 0; i < count; ++i)
    rows_.narrow(0, i, 1).copy_from(all.narrow(0, slots[static_cast<size_t>(i)], 1));
}

void SlotRows::store() const {
  for (size_t i = 0; i < copied_.size(); ++i)
    all_.narrow(0, copied_[i], 1).copy_from(rows_.narrow(0, static_cast<int64_t>(i), 1));
}

}  // namespace temper::layers
