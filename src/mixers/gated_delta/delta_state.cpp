#include "mixers/gated_delta/delta_state.h"

#include "mixers/gated_delta/rounding_map.h"

namespace temper::mixers {

namespace {

Tensor states_of(const GatedDeltaConfig& c, int64_t slots, DType dtype, Device device) {
  return Tensor::zeros({slots, c.heads, c.key_dim, c.value_dim}, dtype_at(DeltaPoint::kState, dtype),
                       MemoryTag::kKvCache, device);
}

Tensor windows_of(const GatedDeltaConfig& c, int64_t slots, DType dtype, Device device) {
  return Tensor::zeros({slots, c.width - 1, c.channels()}, dtype_at(DeltaPoint::kProjections, dtype),
                       MemoryTag::kKvCache, device);
}

}  // namespace

DeltaState::DeltaState(const GatedDeltaConfig& c, DType dtype, Device device)
    : state_(states_of(c, 1, dtype, device)), window_(windows_of(c, 1, dtype, device)) {}

int64_t DeltaState::truncate(int64_t length, int64_t held) {
  if (length == held) return length;
  state_.fill_zero();
  window_.fill_zero();
  return 0;
}

DeltaPages::DeltaPages(const GatedDeltaConfig& c, int64_t slots, DType dtype, Device device)
    : states_(states_of(c, slots, dtype, device)), windows_(windows_of(c, slots, dtype, device)) {}

void DeltaPages::clear_slot(int64_t slot) const {
  for (const Tensor& all : {states_, windows_}) all.narrow(0, slot, 1).fill_zero();
}

void DeltaPages::copy_slot(int64_t from, int64_t to) const {
  for (const Tensor& all : {states_, windows_}) all.narrow(0, to, 1).copy_from(all.narrow(0, from, 1));
}

}  // namespace temper::mixers
