#include "recipes/keys/quantize_config.h"

#include <gtest/gtest.h>

#include "config/load.h"
#include "recipes/keys/run_config.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

using quantizers::QuantizerKind;
using quantizers::Sharing;

QuantizeConfig written(const std::string& quantize) {
  RunConfig run;
  config::Schema schema = config::schema_of(run);
  config::load_text(schema, "model: {path: m}\ndata: {train: d}\nquantize: {" + quantize + "}", "run.yaml");
  return run.quantize;
}

quantizers::QuantizeOptions loaded(const std::string& rules) {
  return written("preset: FP8_DEFAULT, rules: [" + rules + "]").to_options();
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
  const auto asymmetric = [](const char* format, Sharing sharing, int64_t block, bool dynamic = false) {
    return QuantizerKind{format, sharing, block, dynamic, "", false};
  };
  EXPECT_EQ(weights("weights: int4, weights_symmetric: false"), asymmetric("int4", Sharing::kBlock, 128));
  EXPECT_EQ(weights("weights: int8, weights_symmetric: false"), asymmetric("int8", Sharing::kRow, 0));
  EXPECT_EQ(weights("weights: int8, weights_symmetric: true"), weights("weights: int8"));
  EXPECT_EQ(inputs("inputs: int8, inputs_symmetric: false"), asymmetric("int8", Sharing::kTensor, 0));
  EXPECT_EQ(inputs("inputs: int8, inputs_per: token, inputs_symmetric: false"),
            asymmetric("int8", Sharing::kRow, 0, true));
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
  EXPECT_EQ(
      error("{modules: a}"),
      "[quantize.rules] 'a' says nothing of weights, inputs, outputs or kv_cache: write a format, or none");
  EXPECT_EQ(error("{modules: a, inputs: fp8, weights_per: tensor}"),
            "[quantize.rules] 'a' has weights_per without weights: write the format, too");
  EXPECT_EQ(error("{modules: a, inputs: fp8, weights_again: fp8}"),
            "[quantize.rules] 'a' has weights_again without weights: write the format, too");
  EXPECT_EQ(error("{modules: a, inputs: fp8, block: 64}"),
            "[quantize.rules] 'a' has block without weights: write the format, too");
  for (const char* key :
       {"weights_again: fp8", "weights_per: channel", "weights_symmetric: false", "block: 64"}) {
    const std::string name(key, std::string_view(key).find(':'));
    EXPECT_EQ(error(fmt::format("{{modules: a, weights: none, {}}}", key)),
              fmt::format("[quantize.rules] 'a' has {0} and weights: none; write a format, or leave {0} out",
                          name));
  }
  for (const char* key : {"inputs_per: token", "inputs_amax: dynamic", "inputs_symmetric: true"}) {
    const std::string name(key, std::string_view(key).find(':'));
    EXPECT_EQ(
        error(fmt::format("{{modules: a, inputs: none, {}}}", key)),
        fmt::format("[quantize.rules] 'a' has {0} and inputs: none; write a format, or leave {0} out", name));
  }
  EXPECT_EQ(error("{modules: a, weights: fp8, block: 128}"),
            "[quantize.rules] 'a' has block: 128, and weights in fp8 have an amax per tensor: write "
            "weights_per: block, or tile, or leave block out");
  EXPECT_EQ(
      error("{modules: a, weights: nvfp4, block: 32}"),
      "[quantize.rules] 'a' has block: 32, and nvfp4 has blocks of its own: write weights_per: block, or "
      "tile, or leave block out");
  EXPECT_EQ(error("{modules: a, inputs: mxfp8, inputs_amax: calibrated}"),
            "[quantize.rules] 'a' has inputs_amax: calibrated, but mxfp8 has no amax: leave inputs_amax out");
  EXPECT_NE(error("{modules: a, weights: int4, weights_again: fb8}").find("(did you mean 'fp8'?)"),
            std::string::npos);
  EXPECT_EQ(error("{modules: a, weights: fp8, inputs_amax: dynamic}"),
            "[quantize.rules] 'a' has inputs_per, inputs_amax or inputs_symmetric without inputs: write the "
            "format, too");
  EXPECT_EQ(error("{modules: a, inputs: fp8, weights_symmetric: false}"),
            "[quantize.rules] 'a' has weights_symmetric without weights: write the format, too");
  for (const char* key : {"weights", "inputs", "outputs", "kv_cache"})
    EXPECT_NE(error(fmt::format("{{modules: a, {}: fb8}}", key))
                  .find(fmt::format("[quantize.rules] 'a' has {}: 'fb8' is not a number format (did you mean "
                                    "'fp8'?); formats are ",
                                    key)),
              std::string::npos)
        << key;
  EXPECT_NE(error("{modules: a, weight: fp8}").find("did you mean"), std::string::npos);
  EXPECT_NE(error("{weights: fp8}").find("modules"), std::string::npos);
  EXPECT_NE(error("{modules: a, weights: fp8, weights_per: chanel}").find("channel"), std::string::npos);
}

TEST(QuantizeConfig, ZeroPointsAreOfIntegers) {
  const auto error = [](const std::string& rule) { return error_of([&] { loaded(rule); }); };
  for (const char* format : {"fp8", "nvfp4", "mxint8"})
    for (const char* key : {"weights", "inputs"})
      EXPECT_EQ(
          error(fmt::format("{{modules: a, {0}: {1}, {0}_symmetric: false}}", key, format)),
          fmt::format("[quantize.rules] 'a' has {0}_symmetric: false, and {1} has no zero points: write an "
                      "integer format (int8, int4), or leave {0}_symmetric out",
                      key, format));
  EXPECT_EQ(
      error("{modules: a, weights: int4, weights_symmetric: false, weights_again: fp8}"),
      "[quantize.rules] 'a' has weights_symmetric: false and weights_again: fp8: what is rounded twice has "
      "no zero points; leave one of them out");
}

// Keys that say how something is done that is not done.
TEST(QuantizeConfig, KeysWithoutEffectAreRefused) {
  const auto error = [](const std::string& keys) { return error_of([&] { written(keys).to_options(); }); };
  for (const char* key : {"calibration: mse", "percentile: 99", "smoothquant_alpha: 0.5", "per_expert: false",
                          "calibration_rows: 8"})
    EXPECT_EQ(error(key),
              "[quantize] says how, but has neither a preset nor rules that say what: write preset: "
              "FP8_DEFAULT, for example, or leave quantize out")
        << key;
  EXPECT_EQ(error("preset: FP8, percentile: 99"),
            "[quantize.percentile] is for calibration: percentile, and the run's is max: write calibration: "
            "percentile, or leave percentile out");
  EXPECT_EQ(error("preset: INT4_AWQ, smoothquant_alpha: 0.5"),
            "[quantize.smoothquant_alpha] is for calibration: smoothquant, and the run's is awq_lite: write "
            "calibration: smoothquant, or leave smoothquant_alpha out");
  EXPECT_EQ(written("preset: FP8, calibration: percentile, percentile: 99").to_options().preset, "FP8");
  EXPECT_EQ(written("preset: INT8_SMOOTHQUANT, smoothquant_alpha: 0.5").to_options().preset,
            "INT8_SMOOTHQUANT");
}

}  // namespace
}  // namespace temper::recipes
