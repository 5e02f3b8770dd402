#include "calibration/input_columns.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "primitives/amax.h"
#include "primitives/device_functions.h"

namespace temper::calibration {
namespace {

using quantizers::Quantizer;

float larger(float a, float b) { return b > a || b != b ? b : a; }

// Σ |x| of each column, float32 [columns], where x is; infinity where something is not finite.
Tensor sums_of_magnitudes(const Tensor& x) {
  const auto& functions = primitives::primitive_functions(x.device());
  const int64_t rows = x.dim(0), columns = x.dim(1);
  const auto empty = [&](const Shape& shape) {
    return Tensor::empty(shape, DType::kF32, MemoryTag::kActivations, x.device());
  };
  const Tensor magnitudes = empty({1, rows, columns}), ones = empty({1, 1, rows}),
               sums = empty({1, 1, columns});
  functions.unary(primitives::Magnitude{}, x.to(DType::kF32).contiguous(),
                  magnitudes.reshape({rows, columns}));
  ones.copy_from(Tensor::from<float>(std::vector<float>(static_cast<size_t>(rows), 1.f), ones.shape()));
  functions.matmul(ones, false, magnitudes, false, sums);
  return sums.reshape({columns});
}

// Of the expert with this place among the rank's own.
void add_tokens(InputColumns& columns, const Quantizer& weight, const Tensor& x, int64_t of) {
  const Tensor largest = primitives::amax_of(x, {1, x.dim(1)}).on({}), sums = sums_of_magnitudes(x).on({});
  for (int64_t c = 0; c < x.dim(1); ++c) {
    const auto place = static_cast<size_t>(weight.columns.places[static_cast<size_t>(of * x.dim(1) + c)]);
    columns.largest[place] = larger(columns.largest[place], largest.data<float>()[c]);
    columns.sums[place] += sums.data<float>()[c];
    columns.tokens[place] += static_cast<double>(x.dim(0));
  }
}

void check_columns(const Quantizer& weight, const InputColumns& columns) {
  if (weight.planned.experts == 0 && columns.tokens[0] == 0)
    fail("[quantize] the input of {} saw no values while it was calibrated; give it more rows",
         weight.planned.module());
  for (const float largest : columns.largest)
    if (!std::isfinite(largest))
      fail("[quantize] the input of {} has values that are not finite", weight.planned.module());
}

}  // namespace

void share_largest(std::vector<float>& values, collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  for (const std::vector<float>& other : ranks.gather("columns", std::span<const float>(values)))
    for (size_t i = 0; i < values.size(); ++i) values[i] = larger(values[i], other[i]);
}

ColumnsOfInputs columns_of_inputs(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                                  const CalibrationOptions& options, collectives::Group& parts,
                                  collectives::Group& ranks, Passed& passed) {
  quantizers::Quantizers& quantizers = model.quantizers();
  ColumnsOfInputs all;
  for (const Quantizer& each : quantizers.all()) {
    if (!each.columns.exist()) continue;
    const auto count = static_cast<size_t>(each.columns.whole.numel());
    all[&each] = {std::vector<float>(count), std::vector<double>(count), std::vector<double>(count)};
  }
  const auto observe = [&](Quantizer& each, const Tensor& x, int64_t place) {
    const Quantizer* const weight = quantizers.weight_of_module(each);
    const auto found = all.find(weight);
    if (found != all.end()) add_tokens(found->second, *weight, x, place);
  };
  passed = pass_unrounded(model, rows, options.micro_batch_tokens, parts, observe);
  for (const Quantizer& each : quantizers.all()) {  // in the plan's order, which is every rank's
    const auto found = all.find(&each);
    if (found == all.end()) continue;
    share_largest(found->second.largest, ranks);
    ranks.sum("sums of columns", std::span<double>(found->second.sums));
    ranks.sum("tokens of columns", std::span<double>(found->second.tokens));
    check_columns(each, found->second);
  }
  return all;
}

}  // namespace temper::calibration
