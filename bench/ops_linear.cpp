#include "bench/ops.h"
#include "ops/linear/linear.h"

namespace temper::bench {
namespace {

using ops::Linear;

struct Size {
  int64_t rows, in, out;
};

void add_size(const Size& size, DType dtype) {
  const double flops = 2.0 * static_cast<double>(size.rows * size.in * size.out);
  const double weight_bytes = static_cast<double>(size.in * size.out * size_of(dtype));
  const auto shape = fmt::format("{}x{}x{}/{}", size.rows, size.in, size.out, to_string(dtype));
  for_each_provider<Linear>(
      {dtype, size.in, size.out, false}, flops < 1e8, [&](const auto& provider, const auto& ops) {
        const auto inputs = [=] {
          return std::pair{filled({size.rows, size.in}, dtype), filled({size.out, size.in}, dtype)};
        };
        add(fmt::format("linear/{}/forward/{}", provider, shape), [=] {
          return Work{flops, size.rows <= 16 ? weight_bytes : 0, [=, in = inputs()] {
                        Tape tape(false);
                        linear(tape, ops, tape.constant(in.first), tape.constant(in.second));
                      }};
        });
        if (size.rows <= 16) return;
        add(fmt::format("linear/{}/both/{}", provider, shape), [=] {
          const Tensor dy = filled({size.rows, size.out}, dtype), sums = zeroed({size.out, size.in});
          return Work{3 * flops, 0, [=, in = inputs()] {
                        Tape tape;
                        const Var x = tape.variable(in.first), weight = tape.variable(in.second);
                        weight.slot->set_buffer(sums);
                        tape.backward(linear(tape, ops, x, weight), dy);
                      }};
        });
      });
}

}  // namespace

void add_linear() {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Size size : {Size{1, 1024, 3072},
                            {4, 1024, 3072},
                            {8, 1024, 3072},
                            {16, 1024, 3072},
                            {32, 1024, 3072},
                            {64, 64, 64},
                            {256, 1024, 4096},
                            {1024, 1024, 6144},
                            {1024, 3072, 1024}})
      add_size(size, dtype);
}

}  // namespace temper::bench
