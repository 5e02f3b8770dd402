#pragma once
#include "layers/sequence_state.h"
#include "mixers/gated_delta/gated_delta.h"

namespace temper::mixers {

// What the gated delta rule keeps of one sequence in one layer, whatever its length: the state of each head
// and the last inputs of the convolution. It cannot go back, but to nothing.
class DeltaState : public layers::MixerState {
 public:
  DeltaState(const GatedDeltaConfig& config, DType dtype, Device device = {});

  const Tensor& state() const { return state_; }    // [1, heads, key_dim, value_dim] float32
  const Tensor& window() const { return window_; }  // [1, width - 1, channels]

  void reserve(int64_t, int64_t) override {}
  int64_t truncate(int64_t length, int64_t held) override;

 private:
  Tensor state_, window_;
};

}  // namespace temper::mixers
