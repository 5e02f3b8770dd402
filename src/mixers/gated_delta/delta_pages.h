#pragma once
#include "layers/paged_states.h"
#include "mixers/gated_delta/gated_delta.h"

namespace temper::mixers {

// What the gated delta rule keeps of many sequences in one layer, each in its slot, whatever its length: the
// state of each head and the last inputs of the convolution. It cannot go back, but to nothing.
class DeltaPages : public layers::MixerPages {
 public:
  DeltaPages(const GatedDeltaConfig& config, int64_t slots, DType dtype, Device device = {});

  const Tensor& states() const { return states_; }    // [slots, heads, key_dim, value_dim] float32
  const Tensor& windows() const { return windows_; }  // [slots, width - 1, channels]

  bool has_slots() const override { return true; }
  void clear_slot(int64_t slot) const override;
  void copy_slot(int64_t from, int64_t to) const override;

 private:
  Tensor states_, windows_;
};

}  // namespace temper::mixers
