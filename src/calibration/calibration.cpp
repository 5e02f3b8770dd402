#include "calibration/calibration.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "calibration/amax_searches.h"
#include "calibration/awq_clip.h"
#include "calibration/calibration_passes.h"
#include "calibration/column_scales.h"
#include "calibration/shared_amax.h"
#include "layers/parameters/sharded_layers.h"
#include "primitives/amax.h"
#include "primitives/fake_quantized.h"

namespace temper::calibration {
namespace {

using quantizers::CalibrationMethod;
using quantizers::Quantizer;
using quantizers::Quantizers;

void check_finite(const Quantizer& each) {
  const auto check = [&](const Tensor& ends, const char* what) {
    const Tensor here = ends.on({});
    for (const float end : here.values<float>())
      if (!std::isfinite(end))
        fail("[quantize] {} found {} of {}: {} values that are not finite", each.planned.name, what,
             std::isnan(end) ? std::nanf("") : end,
             each.planned.of_input ? "the module's input has" : "the weight has");
  };
  check(each.amax, each.low.defined() ? "an upper end" : "an amax");
  if (each.low.defined()) check(each.low, "a lower end");
}

void begin(Quantizer& each, const layers::Decoder& model) {
  each.amax.fill_zero();
  if (each.low.defined()) each.low.fill_zero();
  each.observed = false;
  if (each.planned.of_input || !each.is_here) return;
  const Tensor values = layers::gathered_value(model.parameters(), model.ranks(), each.planned.weight)
                            .contiguous()
                            .reshape(each.planned.values);
  if (each.low.defined()) {
    primitives::grow_amax(values, each.amax, quant::Extreme::kHigh);
    primitives::grow_amax(values, each.low, quant::Extreme::kLow);
  } else {
    primitives::grow_amax(
        each.columns.exist() ? primitives::scaled_columns(values, each.columns.inverse) : values, each.amax);
  }
  check_finite(each);
}

// Experts by layer that had no token, where their weights are quantized.
std::vector<std::string> idle_experts(layers::Decoder& model,
                                      const std::vector<training::RouterLoad>& loads) {
  const WeightTable& table = model.parameters().table();
  const Quantizers& quantizers = model.quantizers();
  std::vector<std::string> idle;
  for (const training::RouterLoad& load : loads) {
    const auto found =
        std::find_if(quantizers.all().begin(), quantizers.all().end(), [&](const Quantizer& each) {
          return each.planned.experts > 0 &&
                 table.find(each.planned.weight)->layer == static_cast<int64_t>(load.layer);
        });
    if (found == quantizers.all().end() || load.idle() == 0) continue;
    std::vector<std::string> experts;
    for (size_t e = 0; e < load.counts.size(); ++e)
      if (load.counts[e] == 0) experts.push_back(fmt::format("{}", e));
    const std::string& name = found->planned.name;
    idle.push_back(fmt::format("{}: experts {}", name.substr(0, name.find(".experts")), join(experts)));
  }
  return idle;
}

void check_inputs(Quantizers& quantizers, collectives::Group& ranks) {
  for (Quantizer& each : quantizers.all()) {
    if (!is_calibrated_input(each)) continue;
    if (ranks.sum("ranks that saw values", each.observed ? 1 : 0) == 0)
      fail("[quantize] {} saw no values while it was calibrated; give it more rows", each.planned.name);
    check_finite(each);
  }
}

// Experts without a token have no inputs: they take the largest amax of their layer's, as rows of a deployed
// model may reach them.
void fill_idle_inputs(Quantizers& quantizers) {
  for (Quantizer& each : quantizers.all()) {
    if (!is_calibrated_input(each) || each.planned.experts == 0) continue;
    const auto here = [](const Tensor& own, const Tensor& whole) {
      return whole.defined() ? whole : own.on({});
    };
    const Tensor amax = here(each.amax, each.whole),
                 low = each.low.defined() ? here(each.low, each.whole_low) : amax;
    const auto highs = amax.values<float>(), lows = low.values<float>();
    const float highest = *std::max_element(highs.begin(), highs.end()),
                lowest = *std::min_element(lows.begin(), lows.end());
    for (size_t e = 0; e < highs.size(); ++e) {
      if (highs[e] != 0 || lows[e] != 0) continue;
      highs[e] = highest;
      if (each.low.defined()) lows[e] = lowest;
    }
    if (each.whole.defined()) continue;
    each.amax.copy_from(amax);
    if (each.low.defined()) each.low.copy_from(low);
  }
  quantizers.take_own();
}

}  // namespace

bool needs_rows(const Quantizers& quantizers) {
  return std::any_of(quantizers.all().begin(), quantizers.all().end(),
                     [](const Quantizer& each) { return is_calibrated_input(each) || each.columns.exist(); });
}

Calibration calibrate(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                      const CalibrationOptions& options, collectives::Group& parts,
                      collectives::Group& ranks) {
  Quantizers& quantizers = model.quantizers();
  Calibration calibration;
  std::optional<Passed> passed;
  if (quantizers::scales_columns(options.method)) {
    FoundScales found = find_column_scales(model, rows, options, parts, ranks);
    passed = std::move(found.passed);
    calibration.alphas = std::move(found.alphas);
  }
  for (Quantizer& each : quantizers.all()) {
    if (!each.planned.keeps_amax()) continue;
    begin(each, model);
    (each.planned.of_input ? calibration.inputs : calibration.weights) +=
        quantizers.plan().find(each.planned.name)->count;
  }
  const bool passes = std::any_of(quantizers.all().begin(), quantizers.all().end(), is_calibrated_input);
  if (passes) passed = pass_unrounded(model, rows, options.micro_batch_tokens, parts);
  if (passed) {
    calibration.idle_experts = idle_experts(model, passed->loads);
    calibration.tokens = parts.sum("tokens of the calibration", passed->tokens);
  }
  share_amax(quantizers, ranks);
  check_inputs(quantizers, ranks);
  if (options.method <= CalibrationMethod::kEntropy && options.method != CalibrationMethod::kMax) {
    search_weights(model, options, ranks);
    if (passes) search_inputs(model, rows, options, parts, ranks);
    share_amax(quantizers, ranks);
  }
  if (options.method == CalibrationMethod::kAwqClip || options.method == CalibrationMethod::kAwqFull) {
    clip_weights(model, rows, options, parts, ranks);
    share_amax(quantizers, ranks);
  }
  fill_idle_inputs(quantizers);
  quantizers.set_ready();
  return calibration;
}

}  // namespace temper::calibration
