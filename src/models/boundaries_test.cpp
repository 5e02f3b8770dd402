// Documents are said twice, by positions and by cu_seqlens: where the two are unequal a state or a window
// would cross a border, so it is an error.
#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using layers::DecoderInput;

const std::vector<int32_t> kRow{3, 1, 4, 1, 5, 9};

std::string error_of_forward(const DecoderInput& input) {
  const auto model = tiny_model({.type = "qwen3_next"});
  return error_of([&] {
    Tape tape(false);
    model->decoder.forward(tape, input);
  });
}

DecoderInput with_positions(const std::vector<int32_t>& lengths, const std::vector<int32_t>& positions,
                            std::vector<int32_t> continued = {}) {
  DecoderInput input = layers::make_input(kRow, lengths, std::move(continued));
  input.positions = Tensor::from<int32_t>(positions, {1, std::ssize(positions)});
  return input;
}

TEST(Boundaries, PositionsAndCuSeqlensMustAgree) {
  EXPECT_EQ(error_of_forward(with_positions({4, 2}, {0, 1, 2, 3, 0, 1})), "");
  EXPECT_EQ(error_of_forward(with_positions({4, 2}, {0, 1, 0, 1, 0, 1})),
            "positions and cu_seqlens disagree: token 2 is at position 0, but at 2 of document 0, which "
            "cu_seqlens has from token 0 to 4; give both the same documents");
  EXPECT_EQ(error_of_forward(with_positions({4, 2}, {0, 1, 2, 3, 4, 5})),
            "positions and cu_seqlens disagree: token 4 is at position 4, but at 0 of document 1, which "
            "cu_seqlens has from token 4 to 6; give both the same documents");
}

TEST(Boundaries, OfDocumentsThatContinueAnother) {
  EXPECT_EQ(error_of_forward(with_positions({2, 1, 3}, {0, 1, 2, 2, 3, 4}, {-1, 0, 0})), "");
  expect_has(error_of_forward(with_positions({2, 1, 3}, {0, 1, 2, 3, 4, 5}, {-1, 0, 0})),
             "token 3 is at position 3, but at 2 of document 2");
}

TEST(Boundaries, CuSeqlensFillTheRow) {
  DecoderInput input = layers::make_input(kRow, std::vector<int32_t>{4, 2});
  for (const std::vector<int32_t>& starts :
       {std::vector<int32_t>{0, 4, 5}, {1, 6}, {0, 9, 6}, {0, 5, 3, 6}, {0}}) {
    input.cu_seqlens = Tensor::from(starts);
    EXPECT_EQ(error_of_forward(input), "cu_seqlens must rise from 0 to the 6 tokens of the row");
  }
}

}  // namespace
}  // namespace temper::models
