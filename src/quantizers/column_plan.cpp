#include "quantizers/column_plan.h"

#include <algorithm>

#include "base/error.h"

namespace temper::quantizers {
namespace {

// Weights and inputs of 8-bit integers, whose outliers SmoothQuant moves.
bool is_smoothed(const PlannedQuantizer& weight, const PlannedQuantizer* input) {
  const auto integers = [](const PlannedQuantizer& each) {
    return each.format.element.integer && each.format.element.bits == 8;
  };
  return input != nullptr && integers(weight) && integers(*input) && input->keeps_amax();
}

const PlannedQuantizer* input_of_module(const QuantizerPlan& plan, const PlannedQuantizer& weight) {
  const auto found = std::ranges::find_if(plan.quantizers, [&](const PlannedQuantizer& each) {
    return each.role == QuantizerRole::kInput && each.weight == weight.weight;
  });
  return found == plan.quantizers.end() ? nullptr : &*found;
}

// Without column factors, inputs that are not quantized are not observed.
void check_clips(const QuantizerPlan& plan) {
  for (const PlannedQuantizer& weight : plan.quantizers) {
    if (weight.of_input || !weight.keeps_amax()) continue;
    if (!weight.format.has_blocks() && weight.kind.sharing != Sharing::kBlock) continue;
    const PlannedQuantizer* const input = input_of_module(plan, weight);
    if (input == nullptr || !input->keeps_amax())
      fail(
          "[quantize.calibration] awq_clip needs calibrated inputs for weights in blocks, and {} has none: "
          "write awq_full",
          weight.module());
  }
}

}  // namespace

Shape column_factors_of(const Shape& values) {
  Shape factors = values;
  factors[values.ndim() - 2] = 1;
  return factors;
}

void plan_column_factors(const WeightTable& table, QuantizerPlan& plan, CalibrationMethod method) {
  if (method == CalibrationMethod::kAwqClip) return check_clips(plan);
  if (!scales_columns(method)) return;
  const bool smooth = method == CalibrationMethod::kSmoothQuant;
  bool any = false;
  for (PlannedQuantizer& weight : plan.quantizers) {
    if (weight.of_input) continue;
    const auto input =
        std::find_if(plan.quantizers.begin(), plan.quantizers.end(), [&](const PlannedQuantizer& each) {
          return each.role == QuantizerRole::kInput && each.weight == weight.weight;
        });
    const PlannedQuantizer* const found = input == plan.quantizers.end() ? nullptr : &*input;
    if (smooth ? !is_smoothed(weight, found)
               : !weight.format.has_blocks() && weight.kind.sharing != Sharing::kBlock)
      continue;
    if (table.find(weight.weight)->experts_in_files > 0)
      fail(
          "[quantize.calibration] {} needs the inputs of {}, which cannot be read of experts with biases: "
          "give "
          "them a rule with weights: none, or write calibration: max",
          name_of(method), weight.module());
    any = true;
    weight.pre_quant_scale = column_factors_of(weight.values);
    if (found != nullptr) input->pre_quant_scale = weight.pre_quant_scale;
  }
  if (any) return;
  fail("[quantize.calibration] {} is for {}, and there are none: write calibration: max, or another preset",
       name_of(method), smooth ? "weights and inputs in int8, with inputs calibrated" : "weights in blocks");
}

}  // namespace temper::quantizers
