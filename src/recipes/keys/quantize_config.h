#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "quantizers/quantizer_plan.h"

// The configuration's group `quantize`: which weights and inputs are quantized while the model is trained.
namespace temper::recipes {

enum class AmaxOf { kCalibration, kEachPass };

// What is said of the modules that a pattern names; what is left out is as the preset, or an earlier rule,
// has it.
struct QuantizeRuleConfig {
  std::string modules;
  std::optional<std::string> weights = {}, inputs = {}, outputs = {}, kv_cache = {};  // a format, or "none"
  std::optional<std::string> weights_again = {};  // what comes back of weights is rounded to it, too
  std::optional<quantizers::Sharing> weights_per = {}, inputs_per = {};
  std::optional<AmaxOf> inputs_amax = {};
  std::optional<bool> weights_symmetric = {}, inputs_symmetric = {};  // false: integers with zero points
  std::optional<int64_t> block = {};                                  // 128
};

struct QuantizeConfig {
  std::string preset;
  std::vector<QuantizeRuleConfig> rules;
  bool per_expert = true;
  std::optional<quantizers::CalibrationMethod> calibration = {};
  int64_t calibration_rows = 64;
  std::optional<double> percentile = {};         // 99.99
  std::optional<double> smoothquant_alpha = {};  // 1

  // An Error "[quantize…] …" for a rule that says nothing, or half of something, and for keys that would have
  // no effect.
  quantizers::QuantizeOptions to_options() const;
  // The one that is written, or else the preset's.
  quantizers::CalibrationMethod method() const;
};

void describe(config::Schema& s, QuantizeRuleConfig& c);
void describe(config::Schema& s, QuantizeConfig& c);

}  // namespace temper::recipes
