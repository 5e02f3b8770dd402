#pragma once
#include "quantizers/quantizer_plan.h"

namespace temper::quantizers {

// Says which weights, and the inputs of their modules, get column factors by this calibration
// (PlannedQuantizer::pre_quant_scale). Those that it is not for are calibrated by the largest magnitude. An
// Error "[quantize.calibration] …" where it is for none, and where it needs inputs that cannot be observed.
void plan_column_factors(const WeightTable& table, QuantizerPlan& plan, CalibrationMethod method);

// The shape of the factors of columns of values [rows, columns] or [experts, rows, columns].
Shape column_factors_of(const Shape& values);

}  // namespace temper::quantizers
