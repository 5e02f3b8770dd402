// swiglu fused into lora_linear, compared with the two as separate ops.
#include "ops/lora_linear/lora_linear.h"
#include "ops/swiglu/swiglu.h"
#include "primitives/primitives.h"
#include "tests/support/gpu.h"
#include "tests/support/op_testing.h"

namespace temper::layers {
namespace {

using namespace op_testing;
using ops::Binder;
using ops::BoundOps;
using ops::LoraGroup;
using ops::LoraLinear;
using ops::Swiglu;

// down(swiglu(gate_up(x))) of adapters of two halves of the rows, and all gradients.
struct TestMlp {
  int64_t rows, hidden, inner;
  bool own_inputs = false, rematerialize = false;

  std::vector<Doubles> run(const BoundOps& ops, const Device& device, bool joined) const {
    const auto values = [&](uint64_t seed, const Shape& shape, double scale) {
      return tensor_of(normal(seed, shape, scale), shape, DType::kBF16).on(device);
    };
    Tape tape({.rematerialize = rematerialize});
    std::vector<Var> wanted{tape.variable(values(1, {rows, hidden}, 1))};
    const auto groups = [&](const Var& x, const std::vector<int64_t>& widths) {
      std::vector<LoraGroup<Var>> all;
      for (const int64_t row : {int64_t{0}, rows / 2}) {
        const int64_t rank = row == 0 ? 8 : 16, count = static_cast<int64_t>(widths.size());
        LoraGroup<Var> group{row, rows / 2, {}, {}, {}};
        const auto want = [&](const Shape& shape, double scale) {
          return wanted.emplace_back(tape.variable(values(10 + wanted.size(), shape, scale)));
        };
        group.a = want({count * rank, x.shape()[1]}, 0.1);
        for (int64_t column = 0; const int64_t width : widths) {
          group.slices.push_back({column, want({width, rank}, 0.1), 2});
          column += width;
        }
        if (own_inputs) group.input = primitives::narrow(tape, x, 0, row, rows / 2);
        all.push_back(std::move(group));
      }
      return all;
    };
    const Var x = wanted[0];
    Tensor made;
    const Var up = tape.constant(values(2, {2 * inner, hidden}, 0.1)),
              down = tape.constant(values(3, {hidden, inner}, 0.1));
    const Var gate_up =
        lora_linear(tape, ops, x, up, {}, groups(x, {inner, inner}), {.made = joined ? &made : nullptr});
    EXPECT_EQ(made.defined(), joined);
    const Var middle = swiglu(tape, ops, gate_up, made);
    const Var y = lora_linear(tape, ops, middle, down, {}, groups(middle, {hidden}),
                              {.gate_up = joined ? &gate_up : nullptr});
    std::vector<Doubles> results{values_of(y.value)};
    tape.backward(y, values(4, {rows, hidden}, 1));
    for (const Var& each : wanted) results.push_back(values_of(each.slot->take()));
    return results;
  }
};

TEST(SwigluInProducts, HasTheSameBits) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const HardwareFacts facts = detect_hardware("cuda");
  if (facts.compute_capability != 90) GTEST_SKIP() << "the kernel is for 9.0";
  Binder binder({.written = {{"lora_linear", "hopper"}, {"swiglu_mlp", "cuda"}}}, facts);
  binder.bind<LoraLinear>({LoraLinear::Signature{DType::kBF16, 64, 64, false}});
  binder.bind<Swiglu>({Swiglu::Signature{DType::kBF16, 64}});
  const BoundOps ops = binder.finish();
  // The second has tiles for all of the GPU, of each adapter.
  for (const TestMlp& size : {TestMlp{40, 32, 48}, TestMlp{2048, 72, 4096}, TestMlp{2, 32, 48}})
    for (const bool own_inputs : {false, true})
      for (const bool rematerialize : {false, true}) {
        TestMlp mlp = size;
        mlp.own_inputs = own_inputs;
        mlp.rematerialize = rematerialize;
        EXPECT_EQ(mlp.run(ops, facts.device, true), mlp.run(ops, facts.device, false))
            << size.rows << ", " << own_inputs << ", " << rematerialize;
      }
}

}  // namespace
}  // namespace temper::layers
