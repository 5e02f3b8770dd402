#include "bench/ops.h"
#include "ops/dropout/dropout.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::bench {
namespace {

using ops::LoraLinear;
constexpr int64_t kRank = 16;

// `adapters` share the rows of gate|up equally; the weight is frozen.
void add_adapters(const Size& size, int64_t adapters, DType dtype) {
  const int64_t tokens = size.tokens, in = size.model.hidden, out = 2 * size.model.inner;
  const std::string what =
      label(dtype, fmt::format("{}.gate_up.{}_with_{}", size.model.name, tokens, adapters));
  for_each_provider<LoraLinear>(
      {dtype, in, out, false}, what, size.eager, [&](const auto& name, const auto& ops) {
        add_passes(name, dtype, [=]() -> Build {
          const Tensor x = filled({tokens, in}, dtype), weight = filled({out, in}, dtype),
                       a = filled({kRank, in}, dtype), b = filled({out, kRank}, dtype);
          return [=](Tape& tape) {
            std::vector<ops::LoraGroup<Var>> groups;
            const int64_t rows = tokens / adapters;
            for (int64_t i = 0; i < adapters; ++i)
              groups.push_back({i * rows, rows, {}, input(tape, a), {{0, input(tape, b), 2}}});
            return lora_linear(tape, ops, input(tape, x), tape.constant(weight), {}, groups);
          };
        });
      });
}

}  // namespace

void add_lora_linear() {
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes())
      for (const int64_t adapters : {1, 8}) add_adapters(size, adapters, dtype);
}

void add_dropout() {
  using ops::Dropout;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes())
      for_each_provider<Dropout>(
          {dtype}, label(dtype, size.model.name), size.eager, [&](const auto& name, const auto& ops) {
            add_passes(name, dtype, [=]() -> Build {
              return [=, x = filled({row_tokens(size), size.model.hidden}, dtype)](Tape& tape) {
                return dropout(tape, ops, input(tape, x), 0.1f, {1, 2, 3, 0});
              };
            });
          });
}

}  // namespace temper::bench
