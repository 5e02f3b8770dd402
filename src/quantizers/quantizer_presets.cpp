#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "ops/ops_config.h"
#include "quantizers/quantizer_plan.h"

namespace temper::quantizers {
namespace {

QuantizerKind per(Sharing sharing, std::string format, int64_t block = 0) {
  return {std::move(format), sharing, block, false};
}
QuantizerKind per_tensor(std::string format) { return per(Sharing::kTensor, std::move(format)); }
QuantizerKind int4_then_fp8() { return {"int4", Sharing::kBlock, 128, false, "fp8"}; }
QuantizerKind per_token(std::string format) { return {std::move(format), Sharing::kRow, 0, true}; }

// Ends of names that may be left out.
constexpr std::array<std::string_view, 4> kEnds{"_DEFAULT", "_LITE", "_BETA", "_AWQ_BETA"};

bool is_named(const QuantizerPreset& preset, std::string_view name) {
  return preset.name == name || std::ranges::any_of(kEnds, [&](std::string_view end) {
           return preset.name == std::string(name) + std::string(end);
         });
}

}  // namespace

const std::vector<std::pair<std::string, CalibrationMethod>>& calibration_methods() {
  using enum CalibrationMethod;
  static const std::vector<std::pair<std::string, CalibrationMethod>> methods{{"max", kMax},
                                                                              {"mse", kMse},
                                                                              {"percentile", kPercentile},
                                                                              {"entropy", kEntropy},
                                                                              {"smoothquant", kSmoothQuant},
                                                                              {"awq_lite", kAwqLite},
                                                                              {"awq_clip", kAwqClip},
                                                                              {"awq_full", kAwqFull}};
  return methods;
}

const std::string& name_of(CalibrationMethod method) {
  return calibration_methods()[static_cast<size_t>(method)].first;
}

bool scales_columns(CalibrationMethod method) {
  using enum CalibrationMethod;
  return method == kSmoothQuant || method == kAwqLite || method == kAwqFull;
}

bool presets_leave_out(std::string_view module, const WeightSpec& spec) {
  return spec.shape[0] == 1 || ops::module_matches("layers.*.delta.ba", module);
}

const std::vector<QuantizerPreset>& quantizer_presets() {
  static const QuantizerKind none;
  static const std::vector<QuantizerPreset> presets{
      {"FP8_DEFAULT", per_tensor("fp8"), per_tensor("fp8")},
      {"FP8_PER_CHANNEL_PER_TOKEN", per(Sharing::kRow, "fp8"), per_token("fp8")},
      {"FP8_2D_BLOCKWISE_WEIGHT_ONLY", per(Sharing::kTile, "fp8", 128), none},
      {"INT8_DEFAULT", per(Sharing::kRow, "int8"), per_tensor("int8")},
      {"INT8_SMOOTHQUANT", per(Sharing::kRow, "int8"), per_tensor("int8"), CalibrationMethod::kSmoothQuant},
      {"INT8_WEIGHT_ONLY", per(Sharing::kRow, "int8"), none},
      {"INT4_BLOCKWISE_WEIGHT_ONLY", per(Sharing::kBlock, "int4", 128), none},
      {"INT4_AWQ", per(Sharing::kBlock, "int4", 128), none, CalibrationMethod::kAwqLite},
      {"W4A16_ASYM", {"int4", Sharing::kBlock, 128, false, "", false}, none},
      {"NVFP4_DEFAULT", per_tensor("nvfp4"), per_tensor("nvfp4")},
      {"NVFP4_AWQ_LITE", per_tensor("nvfp4"), per_tensor("nvfp4"), CalibrationMethod::kAwqLite},
      {"NVFP4_AWQ_CLIP", per_tensor("nvfp4"), per_tensor("nvfp4"), CalibrationMethod::kAwqClip},
      {"NVFP4_AWQ_FULL", per_tensor("nvfp4"), per_tensor("nvfp4"), CalibrationMethod::kAwqFull},
      {"W4A16_NVFP4", per_tensor("nvfp4"), none},
      {"W4A8_AWQ_BETA", int4_then_fp8(), per_tensor("fp8"), CalibrationMethod::kAwqLite},
      {"W4A8_MXFP4_FP8", per_tensor("mxfp4"), {"fp8", Sharing::kTensor, 0, true}},
      {"MXFP8_DEFAULT", per_tensor("mxfp8"), per_tensor("mxfp8")},
      {"MXFP6_DEFAULT", per_tensor("mxfp6"), per_tensor("mxfp6")},
      {"MXFP4_DEFAULT", per_tensor("mxfp4"), per_tensor("mxfp4")},
      {"MXINT8_DEFAULT", per_tensor("mxint8"), per_tensor("mxint8")},
  };
  return presets;
}

const QuantizerPreset& quantizer_preset(std::string_view given) {
  std::string name(given);
  if (name.ends_with("_CFG")) name.resize(name.size() - 4);
  std::vector<std::string> known;
  for (const QuantizerPreset& preset : quantizer_presets()) {
    if (is_named(preset, name)) return preset;
    known.emplace_back(preset.name);
  }
  // "INT4" is the beginning of several.
  std::vector<std::string> begun;
  std::ranges::copy_if(known, std::back_inserter(begun), [&](const std::string& full) {
    return !name.empty() && full.starts_with(name + "_");
  });
  if (!begun.empty()) fail("[quantize.preset] '{}' is not a preset; write {}", given, join(begun, " or "));
  std::vector<std::string> written = known;
  for (const std::string& full : known)
    for (const std::string_view end : kEnds)
      if (full.ends_with(end)) written.push_back(full.substr(0, full.size() - end.size()));
  const std::string nearest = nearest_name(name, written);
  fail("[quantize.preset] '{}' is not a preset{}; there are {}", given,
       nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), join(known));
}

}  // namespace temper::quantizers
