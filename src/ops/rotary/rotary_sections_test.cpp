// Tokens that have three positions.
#include "ops/rotary/rotary_test_support.h"

namespace temper::ops {
namespace {

using namespace rotary_testing;

// Positions of a picture: time stands still, rows and columns rise.
std::vector<int32_t> of_a_picture(int64_t tokens) {
  std::vector<int32_t> positions;
  for (int64_t which = 0; which < 3; ++which)
    for (int64_t t = 0; t < tokens; ++t)
      positions.push_back(static_cast<int32_t>(which == 0 ? 7 : which == 1 ? 7 + t / 4 : 7 + t % 4 * 3));
  return positions;
}

Options sectioned(int64_t dim, RotarySections sections, int64_t tokens = 9) {
  return {.tokens = tokens,
          .dim = dim,
          .positions = of_a_picture(tokens),
          .unrotated = dim - 2 * sections.sum(),
          .form = {.sections = sections}};
}

TEST(RotarySections, ThreePositionsShareThePairs) {
  for (const bool norm : {false, true})
    for (Options o :
         {sectioned(16, {{2, 3, 3}}), sectioned(128, {{16, 24, 24}}, 70), sectioned(80, {{8, 16, 16}}),
          sectioned(8, {{0, 1, 3}}), sectioned(6, {{3, 0, 0}}), sectioned(16, {{3, 3, 2}, true}),
          sectioned(128, {{24, 20, 20}, true}, 70), sectioned(32, {{3, 3, 2}, true}),
          sectioned(256, {{11, 11, 10}, true}), sectioned(2, {{1, 0, 0}, true})}) {
      o.norm = norm;
      check(o);
    }
  Options everything = sectioned(64, {{8, 4, 4}, true}, 40);
  everything.norm = true;
  everything.form.interleaved = true;
  everything.form.offset = 1;
  check(everything);
}

// q, k and all gradients of one kernel.
Doubles everything_of(const BoundKernel& kernel, const Options& o, DType dtype, const Tensor& positions) {
  const Tables both = tables(600, o.half(), o.scaling);
  Tape tape;
  const Var qkv = tape.variable(
      tensor_of(normal(1, {o.tokens, o.width()}), {o.tokens, o.width()}, dtype).on(kernel.device));
  const Var weight = tape.variable(tensor_of(normal(2, {o.dim}), {o.dim}, dtype).on(kernel.device));
  const RotatedHeads out = rotary(tape, kernel.ops, qkv, weight, weight,
                                  {.heads = o.heads,
                                   .kv_heads = o.kv_heads,
                                   .positions = positions.on(kernel.device),
                                   .cos = both.cos.on(kernel.device),
                                   .sin = both.sin.on(kernel.device),
                                   .form = o.form});
  const Var y = join(tape, out);
  tape.backward(y, tensor_of(normal(3, y.shape()), y.shape(), dtype).on(kernel.device));
  Doubles all = values_of(y.value);
  for (const Var* input : {&qkv, &weight})
    for (const double value : values_of(input->slot->take())) all.push_back(value);
  return all;
}

// Text has three equal positions: bits of plain rotation, whether it is given one of them or all.
TEST(RotarySections, ThreeEqualPositionsHaveTheBitsOfOne) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const RotarySections& sections : {RotarySections{{8, 12, 12}}, RotarySections{{12, 10, 10}, true}}) {
      Options plain{.tokens = 21, .dim = 80, .unrotated = 16}, three = plain;
      three.form.sections = sections;
      const std::vector<int32_t> once = counting(plain.tokens, 40);
      for (int i = 0; i < 3; ++i) three.positions.insert(three.positions.end(), once.begin(), once.end());
      const auto kernels = [&](const Options& o) {
        return bind_everywhere<Rotary>({dtype, o.dim, true, o.unrotated, o.form});
      };
      const std::vector<BoundKernel> usual = kernels(plain), multimodal = kernels(three);
      ASSERT_EQ(usual.size(), multimodal.size());
      for (size_t i = 0; i < usual.size(); ++i) {
        const Doubles expected = everything_of(usual[i], plain, dtype, ints(once));
        EXPECT_EQ(everything_of(multimodal[i], three, dtype, ints(once)), expected) << usual[i].provider;
        EXPECT_EQ(everything_of(multimodal[i], three, dtype, positions_tensor(three)), expected)
            << usual[i].provider;
      }
    }
}

// A kernel that does not say that it takes three positions is refused when it is chosen, by its name or not.
TEST(RotarySections, AKernelOfOnePositionRefusesThree) {
  const Rotary::Signature plain{DType::kF32, 16}, three{DType::kF32, 16, false, 0, {.sections = {{2, 3, 3}}}};
  EXPECT_EQ(Rotary::refuses({}, plain), std::nullopt);
  EXPECT_EQ(Rotary::refuses({.positions = 3}, three), std::nullopt);
  const std::string why = "takes one position of a token, and this model has three (time, height, width)";
  EXPECT_EQ(Rotary::refuses({}, three), why);
  Kernel<Rotary> old = *kernels<Rotary>().find("simd");
  EXPECT_EQ(ask_kernel(old, three, facts()), std::nullopt);
  old.traits = {};
  EXPECT_EQ(ask_kernel(old, plain, facts()), std::nullopt);
  EXPECT_EQ(ask_kernel(old, three, facts()), why);
  EXPECT_EQ(ask_kernel(*kernels<Rotary>().find("eager"), three, facts()), std::nullopt);
  // One that a family adds: bound for text alone, refused by its name, and never taken in silence.
  static Kernel<Rotary> added;
  added = old;
  family_tables().add(
      "one_position_family",
      {.added = {{"rotary_pos_emb", {"one_position", "one_position"}, std::string(hardware::kCpu), &added}}});
  const auto bind = [](const std::string& name, const Rotary::Signature& signature) {
    OpsConfig config;
    if (!name.empty()) config.written["rotary_pos_emb"] = name;
    Binder binder(config, facts(), "one_position_family");
    binder.bind<Rotary>({signature});
    return binder.finish().choices().front();
  };
  EXPECT_EQ(bind("", plain).provider, "one_position");
  EXPECT_EQ(bind("one_position", plain).provider, "one_position");
  expect_error([&] { bind("one_position", three); },
               "[model.ops_implementation] rotary_pos_emb_implementation=one_position cannot run: " + why +
                   ". Set it to one of [eager, simd]");
  const Choice other = bind("", three);
  EXPECT_EQ(other.provider, "simd");
  ASSERT_EQ(other.passed_over.size(), 1u);
  EXPECT_EQ(other.passed_over.front().reason, why);
}

TEST(RotarySections, ChecksSectionsAtTheFrontDoor) {
  const auto three = [](Rotary& c) {
    c.form.sections = {{2, 1, 1}};
    c.positions = Tensor::zeros({3, 2}, DType::kI32);
  };
  refuses(
      [](Rotary& c) {
        c.positions = Tensor::zeros({3, 2}, DType::kI32);
      },
      "positions is [3, 2], needs [2]");
  refuses(
      [&](Rotary& c) {
        three(c);
        c.positions = Tensor::zeros({2, 2}, DType::kI32);
      },
      "positions is [2, 2], needs [3, 2]");
  refuses(
      [&](Rotary& c) {
        three(c);
        c.positions = Tensor::zeros({2, 3}, DType::kI32).transpose(0, 1);
      },
      "positions [3, 2] has strides [1, 3], needs them without gaps");
  refuses(
      [&](Rotary& c) {
        three(c);
        c.positions.data<int32_t>()[5] = 10;
      },
      "position 10 is outside the 10 positions of the model's context");
  refuses(
      [](Rotary& c) {
        c.form.sections = {{2, 1, 2}};
      },
      "sections are of 2 + 1 + 2 pairs, needs 4 in all, the columns of cos");
}

}  // namespace
}  // namespace temper::ops
