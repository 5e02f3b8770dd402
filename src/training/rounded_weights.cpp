#include "training/rounded_weights.h"

#include "base/error.h"
#include "layers/parameters/sharded_layers.h"
#include "ops/fake_quantize/fake_quantize.h"

namespace temper::training {
namespace {

// What a quantizer makes of its weight, of all of it that passes of this rank read.
Tensor rounded(const layers::Decoder& model, const quantizers::Quantizer& each, const Tensor& value) {
  const quantizers::PlannedQuantizer& planned = each.planned;
  Tape tape(false);
  return ops::fake_quantize_parameter(tape, model.ops().at<ops::FakeQuantize>(planned.name),
                                      tape.constant(value.contiguous()), each.amax, planned.format,
                                      {.shape = planned.values,
                                       .factors = {each.columns.inverse, each.columns.pre_quant},
                                       .again = quantizers::second_rounding(each),
                                       .low = each.low})
      .value;
}

}  // namespace

void round_weights(layers::Decoder& model) {
  quantizers::Quantizers& quantizers = model.quantizers();
  layers::ParameterStore& parameters = model.parameters();
  invariant(quantizers.ready() && !quantizers.are_weights_rounded(), "calibrated weights are rounded once");
  for (const quantizers::Quantizer& each : quantizers.all()) {
    if (each.planned.of_input || !each.is_here) continue;
    const size_t index = parameters.index_of(each.planned.weight);
    const Tensor value = layers::gathered_value(parameters, model.ranks(), each.planned.weight);
    const Tensor found = rounded(model, each, value);
    const Placement& placement = parameters.layout()[index];
    if (placement.is_flat())
      parameters.own(index).copy_from(placement.own_elements(found));
    else
      value.copy_from(found);
  }
  parameters.changed();
  quantizers.set_weights_rounded();
}

std::vector<PlacedTensor> rounded_parameters(layers::Decoder& model) {
  layers::ParameterStore& parameters = model.parameters();
  const quantizers::Quantizers& quantizers = model.quantizers();
  std::vector<PlacedTensor> all = parameters.placed();
  if (quantizers.are_weights_rounded()) return all;
  for (const quantizers::Quantizer& each : quantizers.all()) {
    if (each.planned.of_input || !each.is_here) continue;
    invariant(quantizers.ready(), "weights are rounded once quantizers are calibrated");
    const size_t index = parameters.index_of(each.planned.weight);
    const Tensor found =
        rounded(model, each, layers::gathered_value(parameters, model.ranks(), each.planned.weight));
    const Placement& placement = parameters.layout()[index];
    const Tensor own = placement.is_flat() ? placement.own_elements(found) : found;
    all[index].own = own.contiguous().on({}, MemoryTag::kData);
  }
  return all;
}

}  // namespace temper::training
