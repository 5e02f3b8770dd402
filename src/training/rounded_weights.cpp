#include "training/rounded_weights.h"

#include "base/error.h"
#include "layers/sharded_layers.h"
#include "ops/fake_quantize/fake_quantize.h"

namespace temper::training {

void round_weights(layers::Decoder& model) {
  layers::Quantizers& quantizers = model.quantizers();
  layers::ParameterStore& parameters = model.parameters();
  invariant(quantizers.ready() && !quantizers.are_weights_rounded(), "calibrated weights are rounded once");
  for (const layers::Quantizer& each : quantizers.all()) {
    const layers::PlannedQuantizer& planned = each.planned;
    if (planned.of_input) continue;
    const size_t index = parameters.index_of(planned.weight);
    const Tensor value = layers::gathered_value(parameters, model.ranks(), planned.weight);
    Tape tape(false);
    const Tensor rounded =
        ops::fake_quantize(tape, model.ops().at<ops::FakeQuantize>(planned.name),
                           tape.constant(value.contiguous().reshape(planned.values)), each.amax,
                           planned.format, false, {each.columns.inverse, each.columns.pre_quant})
            .value.reshape(value.shape());
    const Placement& placement = parameters.layout()[index];
    if (placement.is_flat())
      parameters.own(index).copy_from(placement.own_elements(rounded));
    else
      value.copy_from(rounded);
  }
  parameters.changed();
  quantizers.set_weights_rounded();
}

}  // namespace temper::training
