#include "recipes/quantize_config.h"

#include "base/error.h"
#include "base/text.h"
#include "quant/number_format.h"

namespace temper::recipes {
namespace {

using layers::QuantizerKind;
using layers::Sharing;

std::string preset_names() {
  std::vector<std::string> names;
  for (const layers::QuantizerPreset& preset : layers::quantizer_presets()) names.emplace_back(preset.name);
  return join(names);
}

// What most people want of a format: an amax for each channel of integers, for each block of those with four
// bits and less, and one for all else.
Sharing usual_sharing(const quant::Format& format) {
  if (format.has_blocks() || !format.element.integer) return Sharing::kTensor;
  return format.element.bits <= 4 ? Sharing::kBlock : Sharing::kRow;
}

QuantizerKind kind_of_weights(const QuantizeRuleConfig& rule) {
  const std::string again = rule.weights_again.value_or("none");
  if (again != "none") quant::format_named(again);
  if (*rule.weights == "none") {
    if (again == "none") return {};
    fail("[quantize.rules] '{}' has weights_again and no format of weights: write weights: int4, for example",
         rule.modules);
  }
  const quant::Format& format = quant::format_named(*rule.weights);
  const Sharing sharing = rule.weights_per.value_or(usual_sharing(format));
  const bool blocks = sharing == Sharing::kBlock || sharing == Sharing::kTile;
  return {*rule.weights, sharing, blocks ? rule.block : 0, false, again == "none" ? "" : again};
}

QuantizerKind kind_of_inputs(const QuantizeRuleConfig& rule) {
  if (*rule.inputs == "none") return {};
  quant::format_named(*rule.inputs);
  const Sharing sharing = rule.inputs_per.value_or(Sharing::kTensor);
  const AmaxOf usual = sharing == Sharing::kRow ? AmaxOf::kEachPass : AmaxOf::kCalibration;
  return {*rule.inputs, sharing, 0, rule.inputs_amax.value_or(usual) == AmaxOf::kEachPass};
}

std::optional<QuantizerKind> calibrated(const std::optional<std::string>& format) {
  if (!format) return std::nullopt;
  if (*format == "none") return QuantizerKind{};
  quant::format_named(*format);
  return QuantizerKind{*format};
}

}  // namespace

layers::CalibrationMethod QuantizeConfig::method() const {
  if (calibration) return *calibration;
  return preset.empty() ? layers::CalibrationMethod::kMax : layers::quantizer_preset(preset).calibration;
}

layers::QuantizeOptions QuantizeConfig::to_options() const {
  layers::QuantizeOptions options{preset, {}, per_expert, method()};
  for (const QuantizeRuleConfig& rule : rules) {
    if (!rule.weights && !rule.inputs && !rule.outputs && !rule.kv_cache)
      fail("[quantize.rules] '{}' has neither weights nor inputs: write a format, or none", rule.modules);
    if (!rule.weights && (rule.weights_per || rule.weights_again))
      fail("[quantize.rules] '{}' has {} without weights: write the format, too", rule.modules,
           rule.weights_per ? "weights_per" : "weights_again");
    if (!rule.inputs && (rule.inputs_per || rule.inputs_amax))
      fail("[quantize.rules] '{}' has inputs_per or inputs_amax without inputs: write the format, too",
           rule.modules);
    layers::QuantizerRule own{rule.modules, {}, {}, calibrated(rule.outputs), calibrated(rule.kv_cache)};
    if (rule.weights) own.weights = kind_of_weights(rule);
    if (rule.inputs) own.inputs = kind_of_inputs(rule);
    options.rules.push_back(std::move(own));
  }
  return options;
}

void describe(config::Schema& s, QuantizeRuleConfig& c) {
  s.field("modules", c.modules,
          "The modules that the rule is for: layers.0-3.mlp.*, or names of Hugging Face's files.")
      .required();
  s.field("weights", c.weights, "The number format of their weights (fp8, int8, nvfp4, mxfp4, …), or none.");
  s.choice(
      "weights_per", c.weights_per,
      {{"tensor", Sharing::kTensor},
       {"channel", Sharing::kRow},
       {"block", Sharing::kBlock},
       {"tile", Sharing::kTile}},
      "What shares an amax: the whole weight, a row of it, a block of a row, or a square. Omitted: what is "
      "usual for the format.");
  s.field(
      "weights_again", c.weights_again,
      "What is rounded to integers in blocks is rounded once more to this format (fp8), by the largest amax "
      "of the matrix, or none.");
  s.field("inputs", c.inputs, "The number format of their inputs, or none.");
  s.choice("inputs_per", c.inputs_per, {{"tensor", Sharing::kTensor}, {"token", Sharing::kRow}},
           "What shares an amax: all tokens of a pass, or each token alone. Omitted: tensor.");
  s.choice("inputs_amax", c.inputs_amax,
           {{"calibrated", AmaxOf::kCalibration}, {"dynamic", AmaxOf::kEachPass}},
           "Whether the amax of inputs is found once, before training, or in each pass. Omitted: calibrated, "
           "or dynamic for tokens.");
  s.field("outputs", c.outputs, "The number format of what they give, or none.");
  s.field("kv_cache", c.kv_cache,
          "The number format of the keys and values that attention keeps, or none (modules: "
          "layers.*.attention.qkv).");
  s.field("block", c.block, "The columns of a block, or the rows and columns of a tile.").at_least(1);
}

void describe(config::Schema& s, QuantizeConfig& c) {
  s.field("preset", c.preset, "A ready-made configuration: " + preset_names() + ".");
  s.list("rules", c.rules, "What differs from the preset, by modules; a later rule decides.");
  s.field("per_expert", c.per_expert,
          "Whether each expert of a mixture has scales of its own; otherwise all of a layer share them.");
  s.choice(
      "calibration", c.calibration, layers::calibration_methods(),
      "How the amax are found: the largest magnitudes, the least squared error, a percentile, or the "
      "least divergence of histograms; or after columns have got factors. Omitted: as the preset says, or "
      "max.");
  s.field("percentile", c.percentile, "Of calibration percentile: how many of 100 values are not cut off.")
      .above(0)
      .at_most(100);
  s.field("smoothquant_alpha", c.smoothquant_alpha,
          "Of calibration smoothquant: how much of the outliers of inputs weights take over, from 0 to 1.")
      .at_least(0)
      .at_most(1);
  s.field("calibration_rows", c.calibration_rows,
          "The rows of data.train that are read before training to calibrate inputs.")
      .at_least(1);
}

}  // namespace temper::recipes
