#include "mixers/attention/kv_state.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace temper::mixers {
namespace {

Tensor filled(int64_t tokens, float value) {
  Tensor tensor = Tensor::empty({tokens, 1, 2}, DType::kF32, MemoryTag::kActivations);
  for (float& element : tensor.values<float>()) element = value;
  return tensor;
}

layers::SequenceState state_of(std::initializer_list<KvState*> layers, int64_t capacity) {
  std::vector<std::unique_ptr<layers::MixerState>> states(layers.begin(), layers.end());
  return {std::move(states), capacity};
}

TEST(KvState, GrowsPerLayerAndForgetsTheEnd) {
  auto* const first = new KvState(5, 1, 2, DType::kF32);
  auto* const second = new KvState(5, 1, 2, DType::kF32);
  layers::SequenceState state = state_of({first, second}, 5);
  for (KvState* layer : {first, second}) {
    const auto [k, v] = layer->append(state.length(), filled(3, 1), filled(3, 2));
    EXPECT_EQ(k.dim(0), 3);
    EXPECT_EQ(v.data<float>()[0], 2);
  }
  state.advance(3);
  EXPECT_EQ(state.truncate(1), 1);
  EXPECT_EQ(state.length(), 1);
  const auto [k, v] = first->append(1, filled(4, 7), filled(4, 8));
  EXPECT_EQ(k.dim(0), 5);
  EXPECT_EQ(k.data<float>()[0], 1);
  EXPECT_EQ(k.data<float>()[2], 7);
  EXPECT_EQ(v.data<float>()[9], 8);
  EXPECT_THROW(second->append(1, filled(5, 0), filled(5, 0)), Error);
  state.reserve(8);
  EXPECT_EQ(state.capacity(), 8);
  EXPECT_EQ(first->append(1, filled(7, 5), filled(7, 5)).first.data<float>()[0], 1);
}

// A state that can only go back to its beginning takes the others along.
struct AllOrNothing : layers::MixerState {
  void reserve(int64_t, int64_t) override {}
  int64_t truncate(int64_t length, int64_t) override { return held = length == held ? length : 0; }
  int64_t held = 3;
};

TEST(SequenceState, GoesBackAsFarAsItsLastLayer) {
  std::vector<std::unique_ptr<layers::MixerState>> states;
  states.push_back(std::make_unique<KvState>(4, 1, 2, DType::kF32));
  states.push_back(std::make_unique<AllOrNothing>());
  layers::SequenceState state(std::move(states), 4);
  state.advance(3);
  EXPECT_EQ(state.truncate(3), 3);
  EXPECT_EQ(state.truncate(2), 0);
  EXPECT_EQ(state.length(), 0);
}

// Steps apart: two such layers meet further back than either asked for.
struct InSteps : layers::MixerState {
  explicit InSteps(int64_t step) : step(step) {}
  void reserve(int64_t, int64_t) override {}
  int64_t truncate(int64_t length, int64_t) override { return length - length % step; }
  int64_t step;
};

TEST(SequenceState, GoesBackUntilAllLayersAgree) {
  std::vector<std::unique_ptr<layers::MixerState>> states;
  states.push_back(std::make_unique<InSteps>(5));
  states.push_back(std::make_unique<InSteps>(4));
  states.push_back(std::make_unique<InSteps>(1));
  layers::SequenceState state(std::move(states), 64);
  state.advance(50);
  EXPECT_EQ(state.truncate(49), 40);
  EXPECT_EQ(state.truncate(39), 20);
  EXPECT_EQ(state.length(), 20);
}

}  // namespace
}  // namespace temper::mixers
