#include "layers/sequence_state.h"

#include "base/error.h"

namespace temper::layers {

void SequenceState::reserve(int64_t capacity) {
  if (capacity <= capacity_) return;
  for (const auto& layer : layers_) layer->reserve(capacity, length_);
  capacity_ = capacity;
}

int64_t SequenceState::truncate(int64_t length) {
  invariant(length >= 0 && length <= length_, "a state can only be cut shorter");
  // A layer that goes further back takes the others along, until all are at one point.
  int64_t left = length;
  for (bool agreed = false; !agreed;) {
    agreed = true;
    for (const auto& layer : layers_) {
      const int64_t reached = layer->truncate(left, length_);
      agreed = agreed && reached == left;
      left = reached;
    }
  }
  return length_ = left;
}

}  // namespace temper::layers
