#include "ops/rotary/rotary.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<Rotary> kRotaryKernels{
    {.head_dim = 128, .qk_norm = true},
    kAll,
    {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, [](const Rotary::Signature& s) {
                                       return s.head_dim <= 64 || (s.head_dim % 8 == 0 && s.head_dim <= 256 &&
                                                                   s.unrotated % 8 == 0);
                                     }}}};

struct Tables {
  Tensor cos, sin;
};

Tables tables(int64_t positions, int64_t half, double scaling = 1) {
  const Shape shape{positions, half};
  Doubles cos, sin;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000, -static_cast<double>(i) / static_cast<double>(half));
      cos.push_back(scaling * std::cos(angle));
      sin.push_back(scaling * std::sin(angle));
    }
  return {tensor_of(cos, shape, DType::kF32), tensor_of(sin, shape, DType::kF32)};
}

Tensor zeros(const Shape& shape) { return Tensor::zeros(shape, DType::kF32); }

struct Options {
  int64_t tokens = 5, heads = 4, kv_heads = 2, dim = 16;
  bool norm = false;
  std::vector<int32_t> positions = {};  // empty: from 17
  double scaling = 1;
  Role role = Role::kParameter;
  float eps = 1e-3f;
  int64_t unrotated = 0;
  Rotary::Form form = {};
  int64_t half() const { return (dim - unrotated) / 2; }
  int64_t all() const { return heads + 2 * kv_heads; }
  int64_t width() const { return all() * dim; }
};

// inputs: qkv and, for the norm, the weights of q and k. All heads of a token in their order.
Doubles reference(const Options& o, const Tables& tables, const std::vector<Doubles>& inputs) {
  const Doubles& x = inputs[0];
  const int64_t half = o.half();
  Doubles y = x;
  for (int64_t t = 0; t < o.tokens; ++t)
    for (int64_t h = 0; h < o.heads + o.kv_heads; ++h) {
      const int64_t start = (t * o.all() + h) * o.dim;
      Doubles n(x.begin() + start, x.begin() + start + o.dim);
      if (o.norm) {
        double sum = 0;
        for (const double value : n) sum += value * value;
        const double rms = std::sqrt(sum / static_cast<double>(o.dim) + o.eps);
        for (int64_t i = 0; i < o.dim; ++i) n[i] *= (o.form.offset + inputs[h < o.heads ? 1 : 2][i]) / rms;
      }
      std::copy(n.begin(), n.end(), y.begin() + start);
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at = o.positions[t] * half + i, low = o.form.interleaved ? 2 * i : i,
                      high = o.form.interleaved ? 2 * i + 1 : i + half;
        const double c = tables.cos.data<float>()[at], s = tables.sin.data<float>()[at];
        y[start + low] = n[low] * c - n[high] * s;
        y[start + high] = n[high] * c + n[low] * s;
      }
    }
  return y;
}

// The heads side by side again, [tokens, width]: their gradients reach the op as strided views.
Var join(Tape& tape, const RotatedHeads& heads) {
  const auto flat = [&](const Var& x) {
    return primitives::reshape(tape, x, {x.shape()[0], x.shape()[1] * x.shape()[2]});
  };
  const Var qk = primitives::concat_last(tape, flat(heads.q), flat(heads.k));
  return primitives::concat_last(tape, qk, flat(heads.v));
}

std::vector<int32_t> counting(int64_t count, int32_t first = 0) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(first + static_cast<int32_t>(i));
  return positions;
}

void check(Options o) {
  if (o.positions.empty()) o.positions = counting(o.tokens, 17);
  const Tables both = tables(600, o.half(), o.scaling);
  const Shape shape{o.tokens, o.width()};
  Case c;
  c.name =
      fmt::format("{} tokens of {} + 2 x {} heads of {}, {} unrotated{}{}", o.tokens, o.heads, o.kv_heads,
                  o.dim, o.unrotated, o.norm ? ", normed" : "", o.form.interleaved ? ", interleaved" : "");
  c.inputs = {{"qkv", shape, normal(1, shape)}};
  if (o.norm)
    for (const uint64_t seed : {2, 3})
      c.inputs.push_back({seed == 2 ? "q_weight" : "k_weight",
                          {o.dim},
                          normal(seed, {o.dim}, 0.3, 1 - o.form.offset),
                          o.role});
  c.reference = [=](const std::vector<Doubles>& inputs) { return reference(o, both, inputs); };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const RotatedHeads heads = rotary(tape, ops, v[0], o.norm ? v[1] : Var{}, o.norm ? v[2] : Var{},
                                      {.heads = o.heads,
                                       .kv_heads = o.kv_heads,
                                       .eps = o.eps,
                                       .positions = on_device_of(v[0], ints(o.positions)),
                                       .cos = on_device_of(v[0], both.cos),
                                       .sin = on_device_of(v[0], both.sin),
                                       .form = o.form});
    return Result{join(tape, heads), {}};
  };
  c.terms = std::max(o.dim, o.norm ? o.tokens * o.heads : 1);
  check_every_kernel<Rotary>(
      c, {.head_dim = o.dim, .qk_norm = o.norm, .unrotated = o.unrotated, .form = o.form});
}

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

// An op that a change makes wrong.
void refuses(const std::function<void(Rotary&)>& change, std::string_view message) {
  const Tables good = tables(10, 4);
  Rotary op{.qkv = zeros({2, 40}),
            .heads = 3,
            .kv_heads = 1,
            .positions = ints({0, 9}),
            .cos = good.cos,
            .sin = good.sin};
  change(op);
  Tape tape;
  expect_error(
      [&] {
        rotary(tape, bind_kernel<Rotary>("eager", {}), tape.constant(op.qkv), tape.constant(op.q_weight),
               tape.constant(op.k_weight), op);
      },
      fmt::format("[rotary_pos_emb] {}", message));
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
