#include "bench/ops.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::bench {

// The pass called training has both gradients, which are formed with the loss.
void add_cross_entropy() {
  using ops::CrossEntropy;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes()) {
      const int64_t tokens = size.tokens, hidden = size.model.hidden, vocab = size.model.vocab;
      for_each_provider<CrossEntropy>({dtype, hidden, vocab}, label(dtype, size.model.name), size.eager,
                                      [&](const auto& name, const auto& ops) {
                                        for (const bool train : {false, true})
                                          add(name + (train ? "/training" : "/forward"), dtype, [=] {
                                            const Tensor targets = numbers(tokens, vocab).on({}),
                                                         states = filled({tokens, hidden}, dtype),
                                                         weight = filled({vocab, hidden}, dtype);
                                            return Timed{[=, sums = train ? gradient_of(weight) : Tensor{}] {
                                              Tape tape(train);
                                              const Var loss = cross_entropy(tape, ops, input(tape, states),
                                                                             parameter(tape, weight, sums),
                                                                             targets, {1.0f / 512})
                                                                   .loss;
                                              if (train) tape.backward(loss);
                                            }};
                                          });
                                      });
    }
}

}  // namespace temper::bench
