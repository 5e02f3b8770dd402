#include "rollout/passes/decoding_passes.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

TEST(DecodingPasses, AreKeptByTheirShapes) {
  const auto model = tiny_model();
  const SequenceCache cache(model->decoder.make_pages({9, 4, 5}), {.page_tokens = 4}, 8, 2);
  DecodingPasses passes(model->decoder, cache, 20);
  DecodingPass& first = passes.at(3, 2, nullptr, 1);
  EXPECT_EQ(first.shape().rows, 4);
  EXPECT_EQ(first.shape().width, 16);
  EXPECT_EQ(&passes.at(4, 16, nullptr, 1), &first);
  EXPECT_NE(&passes.at(5, 16, nullptr, 1), &first);
  EXPECT_NE(&passes.at(4, 17, nullptr, 1), &first);
  EXPECT_NE(&passes.at(4, 16, nullptr, 2), &first);
  EXPECT_EQ(passes.size(), 4);
  passes.forget();
  EXPECT_EQ(passes.size(), 0);
  EXPECT_EQ(passes.at(20, 1, nullptr, 1).shape().rows, 24);
}

}  // namespace
}  // namespace temper::rollout
