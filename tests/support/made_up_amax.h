#pragma once
#include "models/model.h"
#include "quant/groups.h"

namespace temper {

// An amax of its own for every quantizer: of weights the real one, of inputs made up.
inline void set_made_up_amax(models::Model& model) {
  float made_up = 1.7f;
  for (layers::Quantizer& each : model.decoder.quantizers().all()) {
    if (!each.planned.keeps_amax()) continue;
    if (each.planned.of_input)
      for (float& amax : each.amax.values<float>()) amax = made_up += 0.37f;
    else
      each.amax.copy_from(quant::amax_of(
          model.decoder.parameters().at(each.planned.weight).value.reshape(each.planned.values),
          each.planned.amax));
  }
  model.decoder.quantizers().set_ready();
}

}  // namespace temper
