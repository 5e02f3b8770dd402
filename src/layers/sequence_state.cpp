#include "layers/sequence_state.h"

#include <algorithm>

#include "base/error.h"

namespace temper::layers {

void SequenceState::reserve(int64_t capacity) {
  if (capacity <= capacity_) return;
  for (const auto& layer : layers_) layer->reserve(capacity, length_);
  capacity_ = capacity;
}

int64_t SequenceState::truncate(int64_t length) {
  invariant(length >= 0 && length <= length_, "a state can only be cut shorter");
  int64_t left = length;
  for (const auto& layer : layers_) left = std::min(left, layer->truncate(left));
  // One that went further back takes the others along.
  if (left < length)
    for (const auto& layer : layers_)
      invariant(layer->truncate(left) == left, "a state goes back to where another one went");
  return length_ = left;
}

}  // namespace temper::layers
