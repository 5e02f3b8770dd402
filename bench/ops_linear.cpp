#include "bench/ops.h"
#include "ops/linear/linear.h"

namespace temper::bench {
namespace {

using ops::Linear;

void add_product(const Size& size, const char* product, int64_t rows, int64_t in, int64_t out, DType dtype) {
  const std::string what = label(dtype, fmt::format("{}.{}.{}", size.model.name, product, rows));
  const bool generating = rows <= 16;
  for_each_provider<Linear>({dtype, in, out, false}, what, size.eager,
                            [&](const auto& name, const auto& ops) {
                              (generating ? add_forward : add_passes)(name, dtype, [=]() -> Build {
                                const Tensor x = filled({rows, in}, dtype), weight = filled({out, in}, dtype);
                                return [=, sums = generating ? Tensor{} : gradient_of(weight)](Tape& tape) {
                                  return linear(tape, ops, input(tape, x), parameter(tape, weight, sums));
                                };
                              });
                            });
}

}  // namespace

void add_linear() {
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes()) {
      const int64_t hidden = size.model.hidden, inner = size.model.inner;
      for (const int64_t rows : {int64_t{1}, int64_t{8}, size.tokens})
        add_product(size, "gate_up", rows, hidden, 2 * inner, dtype);
      add_product(size, "down", size.tokens, inner, hidden, dtype);
      add_product(size, "qkv", size.tokens, hidden, size.qkv(), dtype);
    }
}

}  // namespace temper::bench
