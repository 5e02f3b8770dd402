#include "mixers/gated_delta/delta_pages.h"

#include "mixers/gated_delta/rounding_map.h"

namespace temper::mixers {

DeltaPages::DeltaPages(const GatedDeltaConfig& c, int64_t slots, DType dtype, Device device)
    : states_(Tensor::zeros({slots, c.heads, c.key_dim, c.value_dim}, dtype_at(DeltaPoint::kState, dtype),
                            MemoryTag::kKvCache, device)),
      windows_(Tensor::zeros({slots, c.width - 1, c.channels()}, dtype_at(DeltaPoint::kProjections, dtype),
                             MemoryTag::kKvCache, device)) {}

void DeltaPages::clear_slot(int64_t slot) const {
  for (const Tensor& all : {states_, windows_}) all.narrow(0, slot, 1).fill_zero();
}

void DeltaPages::copy_slot(int64_t from, int64_t to) const {
  for (const Tensor& all : {states_, windows_}) all.narrow(0, to, 1).copy_from(all.narrow(0, from, 1));
}

}  // namespace temper::mixers
