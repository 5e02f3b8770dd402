#include "recipes/keys/quantize_config.h"

#include "base/error.h"
#include "base/text.h"
#include "quant/number_format.h"

namespace temper::recipes {
namespace {

using quantizers::QuantizerKind;
using quantizers::Sharing;

constexpr int64_t kUsualBlock = 128;

std::string preset_names() {
  std::vector<std::string> names;
  for (const quantizers::QuantizerPreset& preset : quantizers::quantizer_presets())
    names.emplace_back(preset.name);
  return join(names);
}

// What most people want of a format: an amax for each channel of integers, for each block of those with four
// bits and less, and one for all else.
Sharing usual_sharing(const quant::Format& format) {
  if (format.has_blocks() || !format.element.integer) return Sharing::kTensor;
  return format.element.bits <= 4 ? Sharing::kBlock : Sharing::kRow;
}

// Of a key of the rule; with the nearest name where there is none.
const quant::Format& format_of(const QuantizeRuleConfig& rule, std::string_view key,
                               const std::string& format) {
  return quant::format_named(format, fmt::format("[quantize.rules] '{}' has {}:", rule.modules, key));
}

// Whether a rule's format has zero points (symmetric: false), which only integers have whose scale is of one
// amax.
bool is_symmetric(const QuantizeRuleConfig& rule, const char* key, const std::string& format,
                  std::optional<bool> symmetric) {
  const quant::Format& known = format_of(rule, key, format);
  if (!symmetric.value_or(true) && known.scaling != quant::Scaling::kIntegers)
    fail(
        "[quantize.rules] '{}' has {}_symmetric: false, and {} has no zero points: write an integer format "
        "(int8, "
        "int4), or leave {}_symmetric out",
        rule.modules, key, format, key);
  return symmetric.value_or(true);
}

// Refuses a key that describes a format where the format is `none`.
void check_no_format(const QuantizeRuleConfig& rule, const char* role, const char* key, bool is_written) {
  if (is_written)
    fail("[quantize.rules] '{}' has {} and {}: none; write a format, or leave {} out", rule.modules, key,
         role, key);
}

QuantizerKind kind_of_weights(const QuantizeRuleConfig& rule) {
  const std::string again = rule.weights_again.value_or("none");
  if (again != "none") format_of(rule, "weights_again", again);
  if (*rule.weights == "none") {
    check_no_format(rule, "weights", "weights_per", rule.weights_per.has_value());
    check_no_format(rule, "weights", "weights_again", again != "none");
    check_no_format(rule, "weights", "weights_symmetric", rule.weights_symmetric.has_value());
    check_no_format(rule, "weights", "block", rule.block.has_value());
    return {};
  }
  const quant::Format& format = format_of(rule, "weights", *rule.weights);
  const Sharing sharing = rule.weights_per.value_or(usual_sharing(format));
  const bool blocks = sharing == Sharing::kBlock || sharing == Sharing::kTile;
  if (rule.block && !blocks)
    fail("[quantize.rules] '{}' has block: {}, and {}: write weights_per: block, or tile, or leave block out",
         rule.modules, *rule.block,
         format.has_blocks() ? fmt::format("{} has blocks of its own", *rule.weights)
                             : fmt::format("weights in {} have an amax per {}", *rule.weights,
                                           sharing == Sharing::kRow ? "channel" : "tensor"));
  const bool symmetric = is_symmetric(rule, "weights", *rule.weights, rule.weights_symmetric);
  if (!symmetric && again != "none")
    fail(
        "[quantize.rules] '{}' has weights_symmetric: false and weights_again: {}: what is rounded twice has "
        "no "
        "zero points; leave one of them out",
        rule.modules, again);
  return {*rule.weights,
          sharing,
          blocks ? rule.block.value_or(kUsualBlock) : 0,
          false,
          again == "none" ? "" : again,
          symmetric};
}

QuantizerKind kind_of_inputs(const QuantizeRuleConfig& rule) {
  if (*rule.inputs == "none") {
    check_no_format(rule, "inputs", "inputs_per", rule.inputs_per.has_value());
    check_no_format(rule, "inputs", "inputs_amax", rule.inputs_amax.has_value());
    check_no_format(rule, "inputs", "inputs_symmetric", rule.inputs_symmetric.has_value());
    return {};
  }
  const quant::Format& format = format_of(rule, "inputs", *rule.inputs);
  if (!format.needs_amax() && rule.inputs_amax == AmaxOf::kCalibration)
    fail("[quantize.rules] '{}' has inputs_amax: calibrated, but {} has no amax: leave inputs_amax out",
         rule.modules, *rule.inputs);
  const Sharing sharing = rule.inputs_per.value_or(Sharing::kTensor);
  const AmaxOf usual = sharing == Sharing::kRow ? AmaxOf::kEachPass : AmaxOf::kCalibration;
  return {*rule.inputs,
          sharing,
          0,
          rule.inputs_amax.value_or(usual) == AmaxOf::kEachPass,
          "",
          is_symmetric(rule, "inputs", *rule.inputs, rule.inputs_symmetric)};
}

std::optional<QuantizerKind> calibrated(const QuantizeRuleConfig& rule, std::string_view key,
                                        const std::optional<std::string>& format) {
  if (!format) return std::nullopt;
  if (*format == "none") return QuantizerKind{};
  format_of(rule, key, *format);
  return QuantizerKind{*format};
}

}  // namespace

quantizers::CalibrationMethod QuantizeConfig::method() const {
  if (calibration) return *calibration;
  return preset.empty() ? quantizers::CalibrationMethod::kMax
                        : quantizers::quantizer_preset(preset).calibration;
}

quantizers::QuantizeOptions QuantizeConfig::to_options() const {
  const QuantizeConfig usual;
  if (preset.empty() && rules.empty() &&
      (calibration || percentile || smoothquant_alpha || per_expert != usual.per_expert ||
       calibration_rows != usual.calibration_rows))
    fail(
        "[quantize] says how, but has neither a preset nor rules that say what: write preset: FP8_DEFAULT, "
        "for example, or leave quantize out");
  const auto check_method = [&](const char* key, bool is_written, quantizers::CalibrationMethod of) {
    if (is_written && method() != of)
      fail(
          "[quantize.{}] is for calibration: {}, and the run's is {}: write calibration: {}, or leave {} out",
          key, quantizers::name_of(of), quantizers::name_of(method()), quantizers::name_of(of), key);
  };
  check_method("percentile", percentile.has_value(), quantizers::CalibrationMethod::kPercentile);
  check_method("smoothquant_alpha", smoothquant_alpha.has_value(),
               quantizers::CalibrationMethod::kSmoothQuant);
  quantizers::QuantizeOptions options{preset, {}, per_expert, method()};
  for (const QuantizeRuleConfig& rule : rules) {
    if (!rule.weights && !rule.inputs && !rule.outputs && !rule.kv_cache)
      fail(
          "[quantize.rules] '{}' says nothing of weights, inputs, outputs or kv_cache: write a format, or "
          "none",
          rule.modules);
    if (!rule.weights && (rule.weights_per || rule.weights_again || rule.weights_symmetric || rule.block))
      fail("[quantize.rules] '{}' has {} without weights: write the format, too", rule.modules,
           rule.weights_per         ? "weights_per"
           : rule.weights_again     ? "weights_again"
           : rule.weights_symmetric ? "weights_symmetric"
                                    : "block");
    if (!rule.inputs && (rule.inputs_per || rule.inputs_amax || rule.inputs_symmetric))
      fail(
          "[quantize.rules] '{}' has inputs_per, inputs_amax or inputs_symmetric without inputs: write the "
          "format, "
          "too",
          rule.modules);
    quantizers::QuantizerRule own{rule.modules,
                                  {},
                                  {},
                                  calibrated(rule, "outputs", rule.outputs),
                                  calibrated(rule, "kv_cache", rule.kv_cache)};
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
  s.field("weights", c.weights,
          "The number format of the modules' weights (fp8, int8, nvfp4, mxfp4, …), or none.");
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
      "A second format (fp8) for the dequantized values of weights in blocks of integers, with one scale for "
      "the whole matrix, or none.");
  s.field(
      "weights_symmetric", c.weights_symmetric,
      "Whether integer weights are quantized symmetrically; false gives each scale a zero point, so that all "
      "codes are for the range that the values have. Omitted: true.");
  s.field("inputs", c.inputs, "The number format of the modules' inputs, or none.");
  s.choice("inputs_per", c.inputs_per, {{"tensor", Sharing::kTensor}, {"token", Sharing::kRow}},
           "What shares an amax: all tokens of a pass, or each token alone. Omitted: tensor.");
  s.choice("inputs_amax", c.inputs_amax,
           {{"calibrated", AmaxOf::kCalibration}, {"dynamic", AmaxOf::kEachPass}},
           "Whether the amax of inputs is found once, before training, or in each pass. Omitted: calibrated, "
           "or dynamic for tokens.");
  s.field("inputs_symmetric", c.inputs_symmetric,
          "Whether inputs are quantized symmetrically; false gives each scale a zero point. Omitted: true.");
  s.field("outputs", c.outputs, "The number format of the modules' outputs, or none.");
  s.field("kv_cache", c.kv_cache,
          "The number format of the keys and values that attention keeps, or none (modules: "
          "layers.*.attention.qkv).");
  s.field("block", c.block,
          "The columns of a block of weights, or the rows and columns of a tile. Omitted: 128.")
      .at_least(1);
}

void describe(config::Schema& s, QuantizeConfig& c) {
  s.field("preset", c.preset, "The preset to use: " + preset_names() + ".");
  s.list("rules", c.rules, "What differs from the preset, by modules; a later rule decides.");
  s.field("per_expert", c.per_expert,
          "Whether each expert of a mixture has scales of its own; otherwise all of a layer share them.");
  s.choice(
      "calibration", c.calibration, quantizers::calibration_methods(),
      "How the amax are found: the largest magnitudes, the least squared error, a percentile, or the least "
      "divergence of histograms; or after scaling columns (SmoothQuant, AWQ). Omitted: as the preset says, "
      "or max.");
  s.field("percentile", c.percentile,
          "The percentile of magnitudes that is the amax, with calibration percentile. Omitted: 99.99.")
      .above(0)
      .at_most(100);
  s.field("smoothquant_alpha", c.smoothquant_alpha,
          "The share of the inputs' outliers that is moved into the weights, from 0 to 1, with calibration "
          "smoothquant. Omitted: 1.")
      .at_least(0)
      .at_most(1);
  s.field("calibration_rows", c.calibration_rows,
          "The rows of data.train that are read before training to calibrate inputs.")
      .at_least(1);
}

}  // namespace temper::recipes
