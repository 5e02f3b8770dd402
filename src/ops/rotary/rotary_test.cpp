#include "ops/rotary/rotary_test_support.h"

namespace temper::ops {
namespace {

using namespace rotary_testing;

const RequiredKernels<Rotary> kRotaryKernels{
    {.head_dim = 128, .qk_norm = true},
    kAll,
    {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, [](const Rotary::Signature& s) {
                                       return s.head_dim <= 64 || (s.head_dim % 8 == 0 && s.head_dim <= 256 &&
                                                                   s.unrotated % 8 == 0);
                                     }}}};

TEST(Rotary, EveryKernelAgrees) {
  for (const bool norm : {false, true}) {
    for (const int64_t dim : {2, 6, 8, 16, 64, 72, 80, 104, 128}) check({.dim = dim, .norm = norm});
    check({.tokens = 1, .heads = 1, .kv_heads = 1, .dim = 4, .norm = norm, .positions = {599}});
    check({.tokens = 130, .heads = 2, .kv_heads = 1, .norm = norm});
    check({.tokens = 40, .heads = 12, .kv_heads = 3, .dim = 64, .norm = norm, .scaling = 1.3});
    check({.tokens = 559, .heads = 2, .kv_heads = 2, .dim = 16, .norm = norm});
    check({.tokens = 0, .norm = norm});
  }
  check({.norm = true, .role = Role::kVariable});
}

TEST(Rotary, BeginningsOfHeads) {
  for (const bool norm : {false, true}) {
    for (const auto& [dim, unrotated] : {std::pair{4, 2}, {16, 4}, {16, 8}, {64, 32}, {80, 60}, {128, 32}})
      check({.dim = dim, .norm = norm, .unrotated = unrotated});
    check({.tokens = 130, .heads = 3, .kv_heads = 1, .dim = 24, .norm = norm, .unrotated = 10});
    for (const int64_t dim : {6, 64}) check({.dim = dim, .norm = norm, .unrotated = dim});
  }
}

TEST(Rotary, InterleavedPairs) {
  for (const bool norm : {false, true}) {
    for (const int64_t dim : {2, 6, 8, 64, 80, 128})
      check({.dim = dim, .norm = norm, .form = {.interleaved = true}});
    for (const auto& [dim, unrotated] : {std::pair{4, 2}, {16, 8}, {24, 10}, {128, 64}, {256, 128}})
      check({.tokens = 40,
             .heads = 3,
             .dim = dim,
             .norm = norm,
             .unrotated = unrotated,
             .form = {.interleaved = true}});
  }
}

TEST(Rotary, WeightsAsDistancesFromOne) {
  for (const int64_t dim : {6, 64, 256}) check({.dim = dim, .norm = true, .form = {.offset = 1}});
  check({.tokens = 130, .dim = 16, .norm = true, .unrotated = 8, .form = {.interleaved = true, .offset = 1}});
}

TEST(Rotary, PositionsRepeatAndJump) {
  check({.tokens = 6, .dim = 8, .positions = {3, 3, 0, 599, 1, 3}});
  check({.tokens = 7, .dim = 64, .norm = true, .positions = {0, 1, 2, 0, 1, 0, 0}});
}

// Kernels that keep inv_rms are asked directly: 1 / sqrt(mean(x²) + eps) of each q and k head.
TEST(Rotary, KeepsTheScaleOfEachHead) {
  const Tensor qkv = tensor_of(normal(1, {3, 5 * 8}), {3, 5 * 8}, DType::kF32),
               weight = tensor_of(normal(2, {8}), {8}, DType::kF32);
  const Tables both = tables(10, 4);
  for (const BoundKernel& kernel : bind_every_kernel<Rotary>({DType::kF32, 8, true})) {
    auto* const forward = kernel.ops.get<Rotary>().forward;
    if (forward == nullptr) continue;
    const Tensor inv_rms =
        forward({qkv, 3, 1, weight, weight, 0.5f, ints({0, 4, 9}), both.cos, both.sin}).inv_rms;
    ASSERT_EQ(inv_rms.shape(), (Shape{3, 4})) << kernel.provider;
    for (int64_t i = 0; i < 12; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < 8; ++j) {
        const double value = qkv.data<float>()[i / 4 * 40 + i % 4 * 8 + j];
        sum += value * value;
      }
      EXPECT_NEAR(inv_rms.data<float>()[i], 1 / std::sqrt(sum / 8 + 0.5), 1e-6) << kernel.provider;
    }
  }
}

// One of q, k and v alone has a gradient: that of the others counts as zero.
TEST(Rotary, AMissingGradientIsZero) {
  const Options o{.norm = true};
  const Tables both = tables(10, 8);
  for (const BoundKernel& kernel : bind_every_kernel<Rotary>({DType::kF32, 16, true}))
    for (int64_t given = 0; given < 3; ++given) {
      Tape tape;
      const Var qkv = tape.variable(tensor_of(normal(1, {5, o.width()}), {5, o.width()}, DType::kF32));
      const Var weight = tape.constant(tensor_of(normal(2, {16}), {16}, DType::kF32));
      const RotatedHeads out = rotary(tape, kernel.ops, qkv, weight, weight,
                                      {.heads = o.heads,
                                       .kv_heads = o.kv_heads,
                                       .eps = 1e-3f,
                                       .positions = ints({0, 1, 2, 3, 9}),
                                       .cos = both.cos,
                                       .sin = both.sin});
      const Var& y = given == 0 ? out.q : given == 1 ? out.k : out.v;
      tape.backward(y, tensor_of(normal(3, y.shape()), y.shape(), DType::kF32));
      const Doubles dqkv = values_of(qkv.slot->take());
      const int64_t first = given == 0 ? 0 : o.heads + (given - 1) * o.kv_heads, end = first + y.shape()[1];
      for (size_t i = 0; i < dqkv.size(); ++i) {
        const int64_t head = static_cast<int64_t>(i) / o.dim % o.all();
        EXPECT_EQ(dqkv[i] != 0, head >= first && head < end) << kernel.provider << ", " << given << ", " << i;
      }
    }
}

// Gradients whose tokens lie apart give the bits of compact ones.
TEST(Rotary, StridedGradients) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BoundKernel& kernel : bind_every_kernel<Rotary>({dtype, 16, true})) {
      auto* const backward = kernel.ops.get<Rotary>().backward;
      if (backward == nullptr) continue;
      const auto make = [&](uint64_t seed, const Shape& shape) {
        return tensor_of(normal(seed, shape), shape, dtype);
      };
      const Tables both = tables(10, 8);
      const Rotary op{make(1, {3, 96}), 4,        1,       make(2, {16}), make(3, {16}), 1e-3f,
                      ints({0, 4, 9}),  both.cos, both.sin};
      const Tensor inv_rms = kernel.ops.get<Rotary>().forward(op).inv_rms, all = make(4, {3, 6, 16});
      const Tensor dq = all.narrow(1, 0, 4), dk = all.narrow(1, 4, 1), dv = all.narrow(1, 5, 1);
      const auto run = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        const GradTarget q_weight{Tensor::empty({16}, DType::kF32), false},
            k_weight{Tensor::empty({16}, DType::kF32), false};
        Doubles values = values_of(backward(op, inv_rms, q, k, v, q_weight, k_weight));
        for (const GradTarget& target : {q_weight, k_weight})
          for (const double value : values_of(target.buffer)) values.push_back(value);
        return values;
      };
      EXPECT_EQ(run(dq, dk, dv), run(dq.clone(), dk.clone(), dv.clone())) << kernel.provider;
    }
}

// A tape that rematerialises makes q and k again together, bit by bit, as often as they are asked for.
TEST(Rotary, HeadsAreMadeAgain) {
  const Tables both = tables(10, 8);
  for (const BoundKernel& kernel : bind_every_kernel<Rotary>({DType::kBF16, 16, true})) {
    Tape tape(TapeOptions{.rematerialize = true});
    const Var qkv = tape.variable(tensor_of(normal(1, {3, 96}), {3, 96}, DType::kBF16));
    const Var weight = tape.constant(tensor_of(normal(2, {16}), {16}, DType::kBF16));
    const RotatedHeads out =
        rotary(tape, kernel.ops, qkv, weight, weight,
               {.heads = 4, .kv_heads = 1, .positions = ints({0, 1, 9}), .cos = both.cos, .sin = both.sin});
    EXPECT_EQ(out.q.remake != nullptr, kernel.provider != kEager) << kernel.provider;
    EXPECT_EQ(out.v.remake, nullptr) << kernel.provider;
    for (int time = 0; time < 2; ++time)
      for (const Var* y : {&out.k, &out.q})
        EXPECT_EQ(values_of(y->saved().get()), values_of(y->value)) << kernel.provider;
  }
}

TEST(Rotary, ChecksHeadsAtTheFrontDoor) {
  refuses([](Rotary& c) { c.qkv = {}; }, "qkv is missing");
  refuses([](Rotary& c) { c.qkv = c.qkv.reshape({80}); }, "qkv is [80], needs 2 dimensions");
  refuses(
      [](Rotary& c) {
        c.qkv = Tensor::zeros({2, 40}, DType::kI32);
      },
      "qkv is int32, needs float32, bfloat16 or float16");
  refuses(
      [](Rotary& c) {
        c.qkv = zeros({2, 41}).narrow(1, 0, 40);
      },
      "qkv [2, 40] has strides [41, 1], needs them without gaps");
  refuses([](Rotary& c) { c.heads = 4; }, "qkv is [2, 40], needs the width of 4 + 2 x 1 heads");
  refuses([](Rotary& c) { c.heads = 0; }, "qkv is [2, 40], needs the width of 0 + 2 x 1 heads");
  refuses([](Rotary& c) { c.qkv = zeros({2, 35}); }, "head_dim is 7, needs an even number");
  refuses([](Rotary& c) { c.q_weight = zeros({8}); }, "k_weight is missing");
  refuses([](Rotary& c) { c.k_weight = zeros({8}); }, "q_weight is missing");
  refuses([](Rotary& c) { c.q_weight = c.k_weight = zeros({7}); }, "q_weight is [7], needs [8]");
  refuses([](Rotary& c) { c.q_weight = c.k_weight = zeros({8}).to(DType::kBF16); },
          "q_weight is bfloat16, needs float32");
  refuses(
      [](Rotary& c) {
        c.q_weight = zeros({8});
        c.k_weight = zeros({1, 8});
      },
      "k_weight is [1, 8], needs [8]");
  refuses(
      [](Rotary& c) {
        c.q_weight = c.k_weight = zeros({8});
        c.eps = -1;
      },
      "eps is -1, needs a value of 0 or more");
}

TEST(Rotary, ChecksPositionsAtTheFrontDoor) {
  refuses([](Rotary& c) { c.positions = ints({0}); }, "positions is [1], needs [2]");
  refuses([](Rotary& c) { c.positions = Tensor::zeros({2}, DType::kI64); },
          "positions is int64, needs int32");
  refuses(
      [](Rotary& c) {
        c.positions = ints({0, 10});
      },
      "position 10 is outside the 10 positions of the model's context");
  refuses(
      [](Rotary& c) {
        c.positions = ints({-1, 0});
      },
      "position -1 is outside the 10 positions of the model's context");
  refuses([](Rotary& c) { c.cos = c.cos.reshape({40}); }, "cos is [40], needs 2 dimensions");
  refuses([](Rotary& c) { c.cos = c.sin = tables(10, 5).cos; }, "cos is [10, 5], needs at most 4 columns");
  refuses([](Rotary& c) { c.sin = tables(9, 4).sin; }, "sin is [9, 4], needs [10, 4]");
  refuses([](Rotary& c) { c.cos = c.cos.to(DType::kBF16); }, "cos is bfloat16, needs float32");
  refuses([](Rotary& c) { c.sin = c.sin.to(DType::kBF16); }, "sin is bfloat16, needs float32");
  const Tensor wide = tables(10, 8).cos.narrow(1, 0, 4);
  refuses([&](Rotary& c) { c.cos = wide; }, "cos [10, 4] has strides [8, 1], needs them without gaps");
  refuses([&](Rotary& c) { c.sin = wide; }, "sin [10, 4] has strides [8, 1], needs them without gaps");
}

}  // namespace
}  // namespace temper::ops
