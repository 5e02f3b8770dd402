#include "bench/ops.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::bench {
namespace {

using ops::CrossEntropy;

struct Size {
  int64_t tokens, hidden, vocab;
};

void add_size(const Size& size, DType dtype) {
  const double flops = 2.0 * static_cast<double>(size.tokens * size.hidden * size.vocab);
  const auto shape = fmt::format("{}x{}x{}/{}", size.tokens, size.hidden, size.vocab, to_string(dtype));
  const CrossEntropy::Signature signature{dtype, size.hidden, size.vocab};
  for_each_provider<CrossEntropy>(signature, flops < 1e8, [&](const auto& provider, const auto& ops) {
    for (const bool train : {false, true})
      add(fmt::format("cross_entropy/{}/{}/{}", provider, train ? "both" : "forward", shape), [=] {
        std::vector<int32_t> ids;
        for (int64_t i = 0; i < size.tokens; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % size.vocab));
        const Tensor targets = Tensor::from(ids), hidden = filled({size.tokens, size.hidden}, dtype),
                     weight = filled({size.vocab, size.hidden}, dtype),
                     sums = zeroed({size.vocab, size.hidden});
        return Work{(train ? 3 : 1) * flops, 0, [=] {
                      Tape tape(train);
                      const Var h = train ? tape.variable(hidden) : tape.constant(hidden);
                      const Var w = train ? tape.variable(weight) : tape.constant(weight);
                      if (train) w.slot->set_buffer(sums);
                      const Var loss = cross_entropy(tape, ops, h, w, targets, {1.0f / 512}).loss;
                      if (train) tape.backward(loss);
                    }};
      });
  });
}

}  // namespace

void add_cross_entropy() {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Size size : {Size{64, 64, 1000}, {512, 1024, 32768}, {256, 1024, 151936}})
      add_size(size, dtype);
}

}  // namespace temper::bench
