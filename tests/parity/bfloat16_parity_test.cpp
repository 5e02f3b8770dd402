// Every model case of the goldens in bfloat16, against values computed by transformers in float32.
//
// The bounds. A value that is kept in bfloat16 is rounded by at most u = 2^-8 of itself, and sums are float32
// inside of kernels. Roundings are independent of one another, so after R of them in a row a tensor is off by
// about u · sqrt(R) of its norm: errors add up as a random walk. A layer rounds what is on the longest way
// through it kPerLayer = 12 times: the norm, q|k|v, the rotated heads, the probabilities (by kernels that
// multiply them in bfloat16), attention's sums, its projection, and the residual sum; the norm, gate|up,
// their product, its projection, and the residual sum. The end adds the final norm and the logits. Where the
// file's weights are float32, loading rounds them, too: both norms' and the four linears', kWeightsPerLayer =
// 6, the embedding's, the final norm's and the head's. Embeddings that are multiplied are rounded twice: the
// factor, and the product. A gradient has gone the whole way forward, in the
// activations that it is multiplied with, and back: R is twice as much. The loss is a mean over N targets,
// whose errors are independent: it is off by sqrt(N) less than the logits.
//
// kAmplification covers what the random walk leaves out: products, norms and softmax pass the error of
// their inputs on with factors other than 1, and the worst of some hundred rows is looked at. transformers'
// own bfloat16 runs of these models (tools/oracles/make_model_goldens.py prints them) need up to 3.3.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/parity/golden_case.h"
#include "tests/support/relative_error.h"

namespace temper::parity {
namespace {

constexpr double kUnit = 0x1p-8, kAmplification = 6;
constexpr int kPerLayer = 12, kWeightsPerLayer = 6;

double bound(double roundings) { return kAmplification * kUnit * std::sqrt(roundings); }

class BFloat16Parity : public GoldenCase {
 protected:
  bool has_rounded_weights(const models::Model& model) const {
    return model.config.at("dtype").as_string() != "bfloat16";
  }
  // Of what enters a layer.
  double roundings(const models::Model& model, int64_t layer) const {
    const int weights = has_rounded_weights(model) ? kWeightsPerLayer : 0;
    const bool multiplied = model.decoder.config().multipliers.embedding != 1;
    const int embedding = (weights > 0 ? 1 : 0) + (multiplied ? 2 : 0);
    return static_cast<double>(layer * (kPerLayer + weights) + embedding);
  }
  double roundings_to_logits(const models::Model& model) const {
    return roundings(model, std::ssize(model.decoder.config().blocks)) + (has_rounded_weights(model) ? 4 : 2);
  }
};

TEST_P(BFloat16Parity, HiddenStatesAndLogits) {
  const auto model = load(DType::kBF16);
  const std::vector<Tensor> found = activations(*model);
  const int64_t layers = std::ssize(model->decoder.config().blocks);
  ASSERT_EQ(static_cast<int64_t>(found.size()), layers + 2);
  for (int64_t i = 0; i <= layers; ++i) {
    // The last one is after the final norm.
    const double allowed = bound(i < layers ? roundings(*model, i) : roundings_to_logits(*model) - 1);
    const Tensor expected = golden("hidden." + std::to_string(i));
    EXPECT_LE(worst_row_error(found[static_cast<size_t>(i)], expected), allowed) << "hidden." << i;
  }
  EXPECT_LE(worst_row_error(found.back(), golden("logits")), bound(roundings_to_logits(*model)));
}

TEST_P(BFloat16Parity, LossAndGradients) {
  const auto model = load(DType::kBF16);
  auto& parameters = model->decoder.parameters();
  parameters.enable_gradients(DType::kF32);
  int64_t count = 0;
  targets(&count);
  const double roundings = roundings_to_logits(*model), expected = golden("loss").item();
  EXPECT_NEAR(run_step(*model), expected,
              bound(roundings) / std::sqrt(static_cast<double>(count)) * expected);
  for_each_weight(
      *model, [&](size_t i) { return parameters[i].grad->grad(); },
      [&](const std::string& name, const Tensor& found) {
        EXPECT_LE(relative_norm_error(found, golden("grad." + name)), bound(2 * roundings)) << name;
      });
}

INSTANTIATE_TEST_SUITE_P(Goldens, BFloat16Parity, testing::ValuesIn(find_cases()), name_of);

}  // namespace
}  // namespace temper::parity
