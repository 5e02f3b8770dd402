#include "training/objectives/objective.h"

namespace temper::training {

Var loss_with_gradient(Tape& tape, const Learnt& learnt, const Var& hidden, double loss) {
  const Tensor gradient = hidden.slot->take();
  const Tensor value = Tensor::from(std::vector<float>{static_cast<float>(loss)});
  return tape.record(value.on(hidden.value.device()), {&learnt.hidden},
                     [slot = learnt.hidden.slot, gradient, like = learnt.hidden.value](const Tensor&) {
                       slot->add(gradient.defined() ? gradient
                                                    : Tensor::zeros(like.shape(), like.dtype(),
                                                                    MemoryTag::kActivations, like.device()));
                     });
}

}  // namespace temper::training
