#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "models/model.h"
#include "tests/support/op_testing.h"

// What adapters add to a model's stream.
namespace temper {

// Of some tokens behind the last layer, with the adapter or, where it is null, without one.
inline op_testing::Doubles end_of_stream(const models::Model& model, const layers::Adapter* adapter) {
  std::vector<Tensor> stream;
  layers::Decoder::Options options;
  options.adapters = {{adapter, 5}};
  options.stream = &stream;
  const std::vector<int32_t> ids{3, 1, 4, 1, 5}, lengths{5};
  Tape tape(false);
  model.decoder.forward(tape, layers::make_input(ids, lengths), options);
  return op_testing::values_of(stream.back());
}

// `stream(rounds, adapts)`: of a model that rounds what the last product of its last layer reads, or does
// not, with an adapter of that product or without. What the adapter adds must be that of what the product
// read before it was rounded.
template <class Stream>
void expect_same_addition(Stream&& stream) {
  const op_testing::Doubles plain = stream(false, false), adapted = stream(false, true),
                            rounded = stream(true, false), both = stream(true, true);
  EXPECT_NE(plain, rounded);
  double largest = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double added = adapted[i] - plain[i];
    largest = std::max(largest, std::abs(added));
    EXPECT_NEAR(both[i] - rounded[i], added, 1e-5) << i;
  }
  EXPECT_GT(largest, 0.01);
}

}  // namespace temper
