#include "bench/ops.h"
#include "ops/dropout/dropout.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::bench {
namespace {

using ops::LoraLinear;

struct Size {
  int64_t rows, in, out, adapters, rank;
};

// `adapters` share the rows equally; the weight is frozen, so the products are two of the base's and three of
// the narrow ones.
struct Inputs {
  Inputs(const Size& size, DType dtype)
      : x(filled({size.rows, size.in}, dtype)),
        weight(filled({size.out, size.in}, dtype)),
        a(filled({size.rank, size.in}, dtype)),
        b(filled({size.out, size.rank}, dtype)),
        dy(filled({size.rows, size.out}, dtype)) {}

  Var run(Tape& tape, const ops::BoundOps& ops, const Size& size) const {
    std::vector<ops::LoraGroup<Var>> groups;
    const int64_t rows = size.rows / size.adapters;
    const auto leaf = [&](const Tensor& value) {
      return tape.recording() ? tape.variable(value) : tape.constant(value);
    };
    for (int64_t i = 0; i < size.adapters; ++i)
      groups.push_back({i * rows, rows, {}, leaf(a), {{0, leaf(b), 2}}});
    return lora_linear(tape, ops, leaf(x), tape.constant(weight), {}, groups);
  }

  Tensor x, weight, a, b, dy;
};

void add_size(const Size& size, DType dtype) {
  const double base = 2.0 * static_cast<double>(size.rows * size.in * size.out),
               narrow = 2.0 * static_cast<double>(size.rows * size.rank * (size.in + size.out));
  const auto shape = fmt::format("{}x{}x{}/{}_of_rank_{}/{}", size.rows, size.in, size.out, size.adapters,
                                 size.rank, to_string(dtype));
  for_each_provider<LoraLinear>({dtype, size.in, size.out, false}, false,
                                [&](const auto& provider, const auto& ops) {
                                  add(fmt::format("lora_linear/{}/forward/{}", provider, shape), [=] {
                                    return Work{base + narrow, 0, [=, in = Inputs(size, dtype)] {
                                                  Tape tape(false);
                                                  in.run(tape, ops, size);
                                                }};
                                  });
                                  if (size.rows <= 16) return;
                                  add(fmt::format("lora_linear/{}/both/{}", provider, shape), [=] {
                                    return Work{2 * base + 3 * narrow, 0, [=, in = Inputs(size, dtype)] {
                                                  Tape tape;
                                                  tape.backward(in.run(tape, ops, size), in.dy);
                                                }};
                                  });
                                });
}

}  // namespace

void add_lora_linear() {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Size size : {Size{1, 1024, 3072, 1, 16},
                            {2048, 1024, 3072, 1, 16},
                            {2048, 1024, 3072, 8, 16},
                            {2048, 1024, 3072, 1, 64},
                            {4096, 128, 256, 1, 8}})
      add_size(size, dtype);
}

void add_dropout() {
  using ops::Dropout;
  constexpr int64_t kElements = 1024 * 1024;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for_each_provider<Dropout>({dtype}, false, [&](const auto& provider, const auto& ops) {
      add(fmt::format("dropout/{}/{}", provider, to_string(dtype)), [=] {
        return Work{0, static_cast<double>(2 * kElements * size_of(dtype)),
                    [=, x = filled({1024, 1024}, dtype)] {
                      Tape tape(false);
                      dropout(tape, ops, tape.constant(x), 0.1f, {1, 2, 3, 0});
                    }};
      });
    });
}

}  // namespace temper::bench
