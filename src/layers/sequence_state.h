#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace temper::layers {

// What one mixer keeps of a sequence: keys and values, a recurrent state.
class MixerState {
 public:
  virtual ~MixerState() = default;
  // Room for `capacity` tokens, keeping the first `length`.
  virtual void reserve(int64_t capacity, int64_t length) = 0;
  // Forgets what follows the first `length` of the `held` tokens, and returns how many are left: fewer where
  // a state cannot go back to that point.
  virtual int64_t truncate(int64_t length, int64_t held) = 0;
};

// What a model keeps of one sequence: the states of its mixers, filled front to back.
class SequenceState {
 public:
  SequenceState(std::vector<std::unique_ptr<MixerState>> layers, int64_t capacity)
      : layers_(std::move(layers)), capacity_(capacity) {}

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  MixerState& layer(size_t index) const { return *layers_[index]; }
  void advance(int64_t tokens) { length_ += tokens; }  // once all layers have taken them in
  void reserve(int64_t capacity);                      // grows, keeping what it holds
  int64_t truncate(int64_t length);                    // of all layers; returns length()

 private:
  std::vector<std::unique_ptr<MixerState>> layers_;
  int64_t capacity_, length_ = 0;
};

}  // namespace temper::layers
