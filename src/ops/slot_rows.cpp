#include "ops/slot_rows.h"

#include <algorithm>

#include "ops/checks.h"

namespace temper::ops {

SlotRows::SlotRows(const Tensor& all, const Tensor& slots) : all_(all), rows_(all) {
  if (!slots.defined()) return;
  const Tensor seen = slots.on({});
  const std::span<const int32_t> own = seen.values<int32_t>();
  const bool together = std::adjacent_find(own.begin(), own.end(),
                                           [](int32_t a, int32_t b) { return b != a + 1; }) == own.end();
  const auto count = static_cast<int64_t>(own.size());
  if (together) {
    rows_ = all.narrow(0, own.empty() ? 0 : own.front(), count);
    return;
  }
  copied_.assign(own.begin(), own.end());
  Shape shape = all.shape();
  shape[0] = count;
  rows_ = Tensor::empty(shape, all.dtype(), MemoryTag::kWorkspace, all.device());
  for (int64_t i = 0; i < count; ++i)
    rows_.narrow(0, i, 1).copy_from(all.narrow(0, own[static_cast<size_t>(i)], 1));
}

void SlotRows::store() const {
  for (size_t i = 0; i < copied_.size(); ++i)
    all_.narrow(0, copied_[i], 1).copy_from(rows_.narrow(0, static_cast<int64_t>(i), 1));
}

void check_slots(std::string_view op, const Tensor& slots, int64_t sequences, const Tensor& all) {
  if (!slots.defined()) return;
  check_dtype(op, "slots", slots, DType::kI32);
  check_shape(op, "slots", slots, {sequences});
  check_contiguous(op, "slots", slots);
  for (const int32_t slot : visible_ids(slots))
    if (slot < 0 || slot >= all.dim(0)) fail("[{}] slots has {}, needs 0 to {}", op, slot, all.dim(0) - 1);
}

}  // namespace temper::ops
