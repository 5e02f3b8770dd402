#include "ops/latent_heads/latent_rotary.h"

#include <array>
#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<LatentRotary> kLatentRotaryKernels{
    {.head_dim = 192, .rope_dim = 64, .interleaved = true},
    kAll,
    {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

struct Tables {
  Tensor cos, sin;
};

Tables tables(int64_t positions, int64_t half, double scaling = 1) {
  Doubles cos, sin;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000, -static_cast<double>(i) / static_cast<double>(half));
      cos.push_back(scaling * std::cos(angle));
      sin.push_back(scaling * std::sin(angle));
    }
  return {tensor_of(cos, {positions, half}, DType::kF32), tensor_of(sin, {positions, half}, DType::kF32)};
}

struct Options {
  int64_t tokens = 5, heads = 3, nope = 16, rope = 8;
  bool interleaved = false;
  std::vector<int32_t> positions = {};  // empty: from 17
  double scaling = 1;
  bool fused = false;  // q and k_rope are views of rows that hold both and more
  int64_t dim() const { return nope + rope; }
};

void rotate(const Options& o, const Tables& tables, int32_t position, const double* x, double* y) {
  const int64_t half = o.rope / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double c = tables.cos.data<float>()[position * half + i],
                 s = tables.sin.data<float>()[position * half + i];
    const double a = x[o.interleaved ? 2 * i : i], b = x[o.interleaved ? 2 * i + 1 : i + half];
    y[i] = a * c - b * s;
    y[i + half] = b * c + a * s;
  }
}

// Each token's queries, then its shared key.
Doubles reference(const Options& o, const Tables& tables, const std::vector<Doubles>& inputs) {
  Doubles y;
  for (int64_t t = 0; t < o.tokens; ++t) {
    const int32_t position = o.positions[static_cast<size_t>(t)];
    Doubles rotated(static_cast<size_t>(o.rope));
    for (int64_t h = 0; h < o.heads; ++h) {
      const double* x = inputs[0].data() + (t * o.heads + h) * o.dim();
      y.insert(y.end(), x, x + o.nope);
      rotate(o, tables, position, x + o.nope, rotated.data());
      y.insert(y.end(), rotated.begin(), rotated.end());
    }
    rotate(o, tables, position, inputs[1].data() + t * o.rope, rotated.data());
    y.insert(y.end(), rotated.begin(), rotated.end());
  }
  return y;
}

Var join(Tape& tape, const RotatedLatent& rotated) {
  const Shape& q = rotated.q.shape();
  return primitives::concat_last(tape, primitives::reshape(tape, rotated.q, {q[0], q[1] * q[2]}),
                                 rotated.k_rope);
}

void check(Options o) {
  if (o.positions.empty())
    for (int64_t t = 0; t < o.tokens; ++t) o.positions.push_back(17 + static_cast<int32_t>(t));
  const Tables both = tables(600, o.rope / 2, o.scaling);
  const Shape q{o.tokens, o.heads * o.dim()}, k{o.tokens, o.rope};
  Case c;
  c.name = fmt::format("{} tokens of {} heads of {} + {}{}", o.tokens, o.heads, o.nope, o.rope,
                       o.interleaved ? ", interleaved" : "");
  c.inputs = {{"q", q, normal(1, q)}, {"k_rope", k, normal(2, k)}};
  if (o.fused) {
    c.inputs[0].padding = {1, 0, o.rope + 12};
    c.inputs[1].padding = {1, q[1] + 12, 0};
  }
  c.reference = [=](const std::vector<Doubles>& inputs) { return reference(o, both, inputs); };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    LatentRotary op;
    op.heads = o.heads;
    op.interleaved = o.interleaved;
    op.positions = on_device_of(v[0], ints(o.positions));
    op.cos = on_device_of(v[0], both.cos);
    op.sin = on_device_of(v[0], both.sin);
    return Result{join(tape, latent_rotary(tape, ops, v[0], v[1], op)), {}};
  };
  check_every_kernel<LatentRotary>(c,
                                   {.head_dim = o.dim(), .rope_dim = o.rope, .interleaved = o.interleaved});
}

TEST(LatentRotary, EveryKernelAgrees) {
  for (const bool interleaved : {false, true}) {
    for (const auto& [nope, rope] : {std::pair<int64_t, int64_t>{128, 64}, {16, 8}, {1, 2}, {7, 6}, {24, 34}})
      check({.nope = nope, .rope = rope, .interleaved = interleaved});
    check({.tokens = 130, .heads = 4, .interleaved = interleaved, .scaling = 1.3});
    check({.tokens = 559, .heads = 1, .interleaved = interleaved});
    check({.tokens = 0, .interleaved = interleaved});
    check({.tokens = 6, .interleaved = interleaved, .positions = {3, 3, 0, 599, 1, 3}});
    check({.tokens = 9, .nope = 32, .rope = 16, .interleaved = interleaved, .fused = true});
  }
}

// One of both alone has a gradient: the other's counts as zero.
TEST(LatentRotary, AMissingGradientIsZero) {
  const Tables both = tables(10, 4);
  LatentRotary op;
  op.heads = 2;
  op.positions = ints({0, 4, 9});
  op.cos = both.cos;
  op.sin = both.sin;
  for (const BoundKernel& kernel : bind_every_kernel<LatentRotary>({DType::kF32, 12, 8, false}))
    for (const bool of_q : {false, true}) {
      Tape tape;
      const Var q = tape.variable(tensor_of(normal(1, {3, 24}), {3, 24}, DType::kF32)),
                k = tape.variable(tensor_of(normal(2, {3, 8}), {3, 8}, DType::kF32));
      const RotatedLatent out = latent_rotary(tape, kernel.ops, q, k, op);
      const Var& y = of_q ? out.q : out.k_rope;
      tape.backward(y, tensor_of(normal(3, y.shape()), y.shape(), DType::kF32));
      for (const Var* x : {&q, &k}) {
        const Tensor grad = x->slot->take();
        const Doubles values = grad.defined() ? values_of(grad) : Doubles();
        const bool any = std::any_of(values.begin(), values.end(), [](double value) { return value != 0; });
        EXPECT_EQ(any, (x == &q) == of_q) << kernel.provider;
      }
    }
}

// Of kernels that say so: a token has the same bits alone and among others.
TEST(LatentRotary, ATokenDoesNotDependOnTheOthers) {
  constexpr int64_t kTokens = 64, kHeads = 3, kNope = 16, kRope = 8, kWidth = kHeads * (kNope + kRope);
  const Tables both = tables(100, kRope / 2);
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < kTokens; ++t) positions.push_back(t * 7 % 100);
  const Tensor q = tensor_of(normal(1, {kTokens, kWidth}), {kTokens, kWidth}, DType::kBF16),
               k = tensor_of(normal(2, {kTokens, kRope}), {kTokens, kRope}, DType::kBF16);
  for (const BoundKernel& kernel :
       bind_everywhere<LatentRotary>({DType::kBF16, kNope + kRope, kRope, true})) {
    if (!kernel.ops.get<LatentRotary>().batch_invariant) continue;
    const auto values = [&](int64_t tokens) {
      LatentRotary op;
      op.heads = kHeads;
      op.interleaved = true;
      op.positions = ints({positions.begin(), positions.begin() + tokens}).on(kernel.device);
      op.cos = both.cos.on(kernel.device);
      op.sin = both.sin.on(kernel.device);
      Tape tape;
      const Var vq = tape.variable(q.narrow(0, 0, tokens).on(kernel.device)),
                vk = tape.variable(k.narrow(0, 0, tokens).on(kernel.device));
      const Var y = join(tape, latent_rotary(tape, kernel.ops, vq, vk, op));
      tape.backward(y, y.value);
      return std::array{values_of(y.value), values_of(vq.slot->take()), values_of(vk.slot->take())};
    };
    const auto all = values(kTokens);
    for (const int64_t tokens : {1, 7}) {
      const auto some = values(tokens);
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(std::equal(some[i].begin(), some[i].end(), all[i].begin())) << kernel.provider;
    }
  }
}

TEST(LatentRotary, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<LatentRotary>("eager", {});
  Tape tape;
  const auto f32 = [](const Shape& shape) { return Tensor::zeros(shape, DType::kF32); };
  const Tables good = tables(10, 4);
  struct Call {
    Tensor q, k_rope, positions, cos, sin;
    int64_t heads = 2;
  };
  const auto refuses = [&](const std::function<void(Call&)>& change, std::string_view message) {
    Call c{f32({2, 40}), f32({2, 8}), ints({0, 9}), good.cos, good.sin};
    change(c);
    LatentRotary op;
    op.heads = c.heads;
    op.positions = c.positions;
    op.cos = c.cos;
    op.sin = c.sin;
    expect_error([&] { latent_rotary(tape, ops, tape.constant(c.q), tape.constant(c.k_rope), op); },
                 fmt::format("[latent_rotary] {}", message));
  };
  refuses([](Call& c) { c.q = {}; }, "q is missing");
  refuses([&](Call& c) { c.q = f32({80}); }, "q is [80], needs 2 dimensions");
  refuses(
      [](Call& c) {
        c.q = Tensor::zeros({2, 40}, DType::kI32);
      },
      "q is int32, needs float32, bfloat16 or float16");
  refuses([&](Call& c) { c.k_rope = f32({3, 8}); }, "k_rope is [3, 8], needs [2, 8]");
  refuses([](Call& c) { c.k_rope = c.k_rope.to(DType::kBF16); }, "k_rope is bfloat16, needs float32");
  refuses([&](Call& c) { c.k_rope = f32({2, 7}); }, "k_rope has 7 columns, needs an even number");
  refuses([](Call& c) { c.heads = 3; }, "q is [2, 40], needs the width of 3 heads of more than 8 entries");
  refuses([](Call& c) { c.heads = 5; }, "q is [2, 40], needs the width of 5 heads of more than 8 entries");
  refuses([](Call& c) { c.positions = ints({0}); }, "positions is [1], needs [2]");
  refuses(
      [](Call& c) {
        c.positions = ints({0, 10});
      },
      "position 10 is outside the 10 positions of the model's context");
  refuses([](Call& c) { c.cos = c.sin = tables(10, 3).cos; }, "cos is [10, 3], needs [10, 4]");
  refuses([](Call& c) { c.sin = c.sin.to(DType::kBF16); }, "sin is bfloat16, needs float32");
}

}  // namespace
}  // namespace temper::ops
