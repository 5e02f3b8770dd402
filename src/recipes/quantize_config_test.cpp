#include "recipes/quantize_config.h"

#include <gtest/gtest.h>

#include "config/load.h"
#include "recipes/run_config.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

using layers::QuantizerKind;
using layers::Sharing;

layers::QuantizeOptions loaded(const std::string& rules) {
  RunConfig run;
  config::Schema schema = config::schema_of(run);
  config::load_text(
      schema, "model: {path: m}\ndata: {train: d}\nquantize: {preset: FP8_DEFAULT, rules: [" + rules + "]}",
      "run.yaml");
  return run.quantize.to_options();
}

TEST(QuantizeConfig, RulesHaveWhatIsUsualForTheirFormat) {
  const auto weights = [](const std::string& keys) {
    return *loaded("{modules: a, " + keys + "}").rules[0].weights;
  };
  const auto inputs = [](const std::string& keys) {
    return *loaded("{modules: a, " + keys + "}").rules[0].inputs;
  };
  EXPECT_EQ(weights("weights: fp8"), (QuantizerKind{"fp8", Sharing::kTensor}));
  EXPECT_EQ(weights("weights: int8"), (QuantizerKind{"int8", Sharing::kRow}));
  EXPECT_EQ(weights("weights: int4"), (QuantizerKind{"int4", Sharing::kBlock, 128}));
  EXPECT_EQ(weights("weights: int4, block: 64"), (QuantizerKind{"int4", Sharing::kBlock, 64}));
  EXPECT_EQ(weights("weights: fp8, weights_per: tile"), (QuantizerKind{"fp8", Sharing::kTile, 128}));
  EXPECT_EQ(weights("weights: nvfp4"), (QuantizerKind{"nvfp4", Sharing::kTensor}));
  EXPECT_EQ(weights("weights: int4, weights_again: fp8"),
            (QuantizerKind{"int4", Sharing::kBlock, 128, false, "fp8"}));
  EXPECT_EQ(weights("weights: int4, weights_again: none"), weights("weights: int4"));
  EXPECT_EQ(weights("weights: none"), QuantizerKind{});
  EXPECT_EQ(weights("weights: none, weights_again: none"), QuantizerKind{});
  EXPECT_EQ(inputs("inputs: fp8"), (QuantizerKind{"fp8", Sharing::kTensor, 0, false}));
  EXPECT_EQ(inputs("inputs: fp8, inputs_per: token"), (QuantizerKind{"fp8", Sharing::kRow, 0, true}));
  EXPECT_EQ(inputs("inputs: fp8, inputs_amax: dynamic"), (QuantizerKind{"fp8", Sharing::kTensor, 0, true}));
  EXPECT_FALSE(loaded("{modules: a, inputs: none}").rules[0].weights.has_value());
  EXPECT_FALSE(QuantizeConfig().to_options().any());
}

TEST(QuantizeConfig, Refusals) {
  const auto error = [](const std::string& rule) { return error_of([&] { loaded(rule); }); };
  EXPECT_EQ(error("{modules: a}"),
            "[quantize.rules] 'a' has neither weights nor inputs: write a format, or none");
  EXPECT_EQ(error("{modules: a, inputs: fp8, weights_per: tensor}"),
            "[quantize.rules] 'a' has weights_per without weights: write the format, too");
  EXPECT_EQ(error("{modules: a, inputs: fp8, weights_again: fp8}"),
            "[quantize.rules] 'a' has weights_again without weights: write the format, too");
  EXPECT_EQ(
      error("{modules: a, weights: none, weights_again: fp8}"),
      "[quantize.rules] 'a' has weights_again and no format of weights: write weights: int4, for example");
  EXPECT_NE(error("{modules: a, weights: int4, weights_again: fb8}").find("(did you mean 'fp8'?)"),
            std::string::npos);
  EXPECT_EQ(error("{modules: a, weights: fp8, inputs_amax: dynamic}"),
            "[quantize.rules] 'a' has inputs_per or inputs_amax without inputs: write the format, too");
  EXPECT_NE(error("{modules: a, weights: fb8}").find("'fb8' is no number format (did you mean 'fp8'?)"),
            std::string::npos);
  EXPECT_NE(error("{modules: a, weight: fp8}").find("did you mean"), std::string::npos);
  EXPECT_NE(error("{weights: fp8}").find("modules"), std::string::npos);
  EXPECT_NE(error("{modules: a, weights: fp8, weights_per: chanel}").find("channel"), std::string::npos);
}

}  // namespace
}  // namespace temper::recipes
