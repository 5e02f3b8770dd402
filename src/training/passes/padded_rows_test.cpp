// Padding of micro-batches is documents of its own behind the others: a convolution or a state takes nothing
// of it into documents of the data, and it gives no gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/packed_rows.h"
#include "tests/support/relative_error.h"
#include "tests/support/tiny_model.h"
#include "training/passes/micro_batch.h"

namespace temper::training {
namespace {

struct PaddedPass {
  Tensor hidden;  // of the tokens that are not padding
  std::vector<Tensor> grads;
};

// Only hidden states of the data have a gradient.
PaddedPass pass_over(models::Model& model, const layers::DecoderInput& input, int64_t tokens) {
  layers::ParameterStore& parameters = model.decoder.parameters();
  parameters.enable_gradients(DType::kF32);
  Tape tape;
  const Var hidden = model.decoder.forward(tape, input);
  Tensor seed = Tensor::zeros(hidden.value.shape(), DType::kF32);
  for (int64_t i = 0; i < tokens * seed.dim(1); ++i)
    seed.data<float>()[i] = std::sin(static_cast<float>(i) * 0.7f);
  tape.backward(hidden, seed);
  PaddedPass found{hidden.value.narrow(0, 0, tokens).contiguous(), {}};
  for (size_t i = 0; i < parameters.size(); ++i)
    found.grads.push_back(parameters[i].grad->filled() ? parameters[i].grad->grad().clone() : Tensor());
  return found;
}

TEST(PaddedRows, PaddingReachesNoDocumentOfAHybrid) {
  for (const char* type : {"qwen3_next", "qwen3_5_text"}) {
    SCOPED_TRACE(type);
    const auto model = tiny_model({.type = type});
    const std::vector<data::PackedRow> rows{test_row(1, {9, 1, 4}), test_row(2, {7})};
    const MicroBatch exact = gather(rows, 0, 2), padded = gather(rows, 0, 2, {.padded = true}),
                     garbage = gather(rows, 0, 2, {.padded = true});
    const int64_t tokens = exact.input.ids.numel(), all = padded.input.ids.numel();
    ASSERT_LT(tokens, all);
    for (int64_t i = tokens; i < all; ++i)
      garbage.input.ids.values<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % 48);
    const PaddedPass alone = pass_over(*model, exact.input, tokens),
                     zeros = pass_over(*model, padded.input, tokens),
                     other = pass_over(*model, garbage.input, tokens);
    EXPECT_LE(relative_error(zeros.hidden, alone.hidden), 1e-6);
    EXPECT_LE(relative_error(other.hidden, alone.hidden), 1e-6);
    for (size_t i = 0; i < alone.grads.size(); ++i) {
      if (!alone.grads[i].defined()) continue;
      EXPECT_LE(relative_error(zeros.grads[i], alone.grads[i], 1e-3), 1e-5)
          << model->decoder.parameters().spec(i).name;
      EXPECT_LE(relative_error(other.grads[i], alone.grads[i], 1e-3), 1e-5)
          << model->decoder.parameters().spec(i).name;
    }
  }
}

}  // namespace
}  // namespace temper::training
