#include "training/objectives/objective.h"

namespace temper::training {

Var loss_with_gradient(Tape& tape, const LossInputs& inputs, const Var& hidden, double loss) {
  const Tensor gradient = hidden.slot->take();
  const Tensor value = Tensor::from(std::vector<float>{static_cast<float>(loss)});
  return tape.record(value.on(hidden.value.device()), {&inputs.hidden},
                     [slot = inputs.hidden.slot, gradient, like = inputs.hidden.value](const Tensor&) {
                       slot->add(gradient.defined() ? gradient
                                                    : Tensor::zeros(like.shape(), like.dtype(),
                                                                    MemoryTag::kActivations, like.device()));
                     });
}

}  // namespace temper::training
