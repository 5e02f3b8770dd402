#include "calibration/column_scales.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "calibration/awq.h"
#include "layers/parameters/sharded_layers.h"
#include "primitives/amax.h"

namespace temper::calibration {
namespace {

using quantizers::Quantizer;

// The largest magnitude in each column of the whole weight.
std::vector<float> largest_of_columns(const layers::Decoder& model, const Quantizer& weight,
                                      collectives::Group& ranks) {
  const Tensor own =
      primitives::amax_of(layers::gathered_value(model.parameters(), model.ranks(), weight.planned.weight)
                              .contiguous()
                              .reshape(weight.planned.values),
                          weight.planned.pre_quant_scale);
  const Tensor here = own.on({});
  std::vector<float> all(static_cast<size_t>(weight.columns.whole.numel()));
  for (size_t i = 0; i < weight.columns.places.size(); ++i)
    all[static_cast<size_t>(weight.columns.places[i])] = here.data<float>()[i];
  share_largest(all, ranks);
  for (const float largest : all)
    if (!std::isfinite(largest)) fail("[quantize] {} has values that are not finite", weight.planned.weight);
  return all;
}

}  // namespace

void round_to(std::span<float> values, DType dtype) {
  const Tensor given = Tensor::from<float>(std::span<const float>(values), {std::ssize(values)});
  std::ranges::copy(given.to(dtype).to(DType::kF32).values<float>(), values.begin());
}

void set_scales(const Quantizer& weight, std::span<const float> scales) {
  weight.columns.whole.copy_from(Tensor::from<float>(scales, weight.columns.whole.shape()));
  weight.columns.take_own();
}

std::vector<float> smoothquant_scales(std::span<const float> inputs, std::span<const float> weights,
                                      double alpha) {
  const auto strength = static_cast<float>(alpha);
  std::vector<float> scales;
  for (size_t c = 0; c < inputs.size(); ++c) {
    const float scale = std::pow(weights[c], 1 - strength) / std::pow(inputs[c], strength);
    scales.push_back(inputs[c] <= 0x1p-31f ? 1.f : std::clamp(scale, 1e-4f, 1e4f));
  }
  return scales;
}

FoundScales find_column_scales(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                               const CalibrationOptions& options, collectives::Group& parts,
                               collectives::Group& ranks) {
  FoundScales found;
  const ColumnsOfInputs inputs = columns_of_inputs(model, rows, options, parts, ranks, found.passed);
  if (options.method != quantizers::CalibrationMethod::kSmoothQuant) {
    found.alphas = search_alphas(model, rows, options, inputs, parts, ranks);
    return found;
  }
  for (const Quantizer& weight : model.quantizers().all()) {
    if (!weight.columns.exist()) continue;
    std::vector<float> scales = smoothquant_scales(inputs.at(&weight).largest,
                                                   largest_of_columns(model, weight, ranks), options.alpha);
    round_to(scales, model.parameters().dtype());
    set_scales(weight, scales);
  }
  return found;
}

}  // namespace temper::calibration
