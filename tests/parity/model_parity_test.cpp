// Every model case of the goldens in float32, against values computed by transformers in float32.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/parity/golden_case.h"
#include "tests/support/paged_text.h"
#include "tests/support/relative_error.h"

namespace temper::parity {
namespace {

class ModelParity : public GoldenCase {};

TEST_P(ModelParity, HiddenStatesAndLogits) {
  const std::vector<Tensor> found = activations(*load(DType::kF32));
  for (size_t i = 0; i + 1 < found.size(); ++i)
    EXPECT_LE(relative_error(found[i], golden("hidden." + std::to_string(i))), 2e-5) << "hidden." << i;
  EXPECT_FALSE(has_golden("hidden." + std::to_string(found.size() - 1)));
  EXPECT_LE(relative_error(found.back(), golden("logits")), 2e-5);
}

TEST_P(ModelParity, LossAndGradients) {
  const auto model = load(DType::kF32);
  model->decoder.parameters().enable_gradients(DType::kF32);
  const double expected = golden("loss").item();
  double balance = 0;
  EXPECT_NEAR(run_step(*model, false, &balance), expected, 1e-6 * expected);
  expect_gradients(*model, 2e-5);
  if (!has_golden("aux_loss")) return;
  EXPECT_NEAR(balance, golden("aux_loss").item(), 1e-5 * balance);
}

TEST_P(ModelParity, CheckpointedLayersGiveTheSameGradients) {
  const auto model = load(DType::kF32);
  model->decoder.parameters().enable_gradients(DType::kF32);
  const double expected = golden("loss").item();
  EXPECT_NEAR(run_step(*model, true), expected, 1e-6 * expected);
  expect_gradients(*model, 2e-5);
}

TEST_P(ModelParity, GreedyWithTheCache) {
  const auto model = load(DType::kF32);
  const std::vector<int32_t> expected = ints(golden("greedy"));
  const std::vector<int32_t> prompt_rows = ints(golden("input_ids"));
  size_t prompt = 0;
  while (prompt < expected.size() && prompt < prompt_rows.size() && expected[prompt] == prompt_rows[prompt])
    ++prompt;
  ASSERT_GT(prompt, 0u);
  PagedText text(model->decoder, static_cast<int64_t>(expected.size()));
  std::vector<int32_t> ids(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(prompt));
  while (ids.size() < expected.size()) {
    Tape tape(false);
    const Tensor hidden = (text.length() == 0 ? text.prompt(tape, ids) : text.decode(tape, ids.back())).value;
    const Tensor logits =
        model->decoder.logits(tape, tape.constant(hidden.narrow(0, hidden.dim(0) - 1, 1))).value;
    const Tensor here = logits.on({});
    const auto row = here.values<float>();
    ids.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  EXPECT_EQ(ids, expected);
}

TEST_P(ModelParity, PackedDocumentsEqualSeparateRuns) {
  const auto model = load(DType::kF32);
  const std::vector<int32_t> ids = ints(golden("packed.input_ids")),
                             positions = ints(golden("packed.position_ids"));
  std::vector<int32_t> lengths;
  for (const int32_t position : positions) {
    if (position == 0) lengths.push_back(0);
    ++lengths.back();
  }
  Tape tape(false);
  const auto logits_of = [&](std::span<const int32_t> tokens, std::span<const int32_t> documents) {
    return model->decoder.logits(tape, model->decoder.forward(tape, layers::make_input(tokens, documents)))
        .value;
  };
  const Tensor packed = logits_of(ids, lengths);
  EXPECT_LE(relative_error(packed, golden("packed.logits")), 2e-5);
  int64_t start = 0;
  for (const int32_t length : lengths) {
    const auto part = std::span(ids).subspan(static_cast<size_t>(start), static_cast<size_t>(length));
    EXPECT_LE(relative_error(packed.narrow(0, start, length), logits_of(part, std::vector{length})), 2e-6);
    start += length;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ModelParity, testing::ValuesIn(find_cases()), name_of);

}  // namespace
}  // namespace temper::parity
