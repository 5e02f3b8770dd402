#include "mixers/gated_delta/delta_state.h"

#include "mixers/gated_delta/rounding_map.h"

namespace temper::mixers {

DeltaState::DeltaState(const GatedDeltaConfig& c, DType dtype, Device device)
    : state_(Tensor::zeros({1, c.heads, c.key_dim, c.value_dim}, dtype_at(DeltaPoint::kState, dtype),
                           MemoryTag::kKvCache, device)),
      window_(Tensor::zeros({1, c.width - 1, c.channels()}, dtype_at(DeltaPoint::kProjections, dtype),
                            MemoryTag::kKvCache, device)) {}

int64_t DeltaState::truncate(int64_t length, int64_t held) {
  if (length == held) return length;
  state_.fill_zero();
  window_.fill_zero();
  return 0;
}

}  // namespace temper::mixers
