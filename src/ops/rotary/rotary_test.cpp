#include "ops/rotary/rotary.h"

#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

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

Doubles reference(const Shape& shape, const std::vector<int32_t>& positions, const Tables& tables,
                  const Doubles& x) {
  const int64_t heads = shape[1], dim = shape[2], half = dim / 2;
  Doubles y(x.size());
  for (int64_t t = 0; t < shape[0]; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < half; ++i) {
        const int64_t low = (t * heads + h) * dim + i, high = low + half, at = positions[t] * half + i;
        const double c = tables.cos.data<float>()[at], s = tables.sin.data<float>()[at];
        y[low] = x[low] * c - x[high] * s;
        y[high] = x[high] * c + x[low] * s;
      }
  return y;
}

void check(const Shape& shape, const std::vector<int32_t>& positions, std::optional<Padding> padding = {},
           double scaling = 1) {
  const Tables both = tables(600, shape[2] / 2, scaling);
  Case c;
  c.name = fmt::format("{}{}", to_string(shape), padding ? ", strided" : "");
  c.inputs = {{"x", shape, normal(1, shape), Role::kVariable, padding}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    return reference(shape, positions, both, inputs[0]);
  };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{rotary(tape, ops, v[0], beside(v[0], ints(positions)), beside(v[0], both.cos),
                         beside(v[0], both.sin)),
                  {}};
  };
  check_every_kernel<Rotary>(c, {.head_dim = shape[2]});
}

std::vector<int32_t> counting(int64_t count, int32_t first = 0) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(first + static_cast<int32_t>(i));
  return positions;
}

TEST(Rotary, EveryKernelAgrees) {
  for (const int64_t dim : {2, 6, 8, 16, 64, 80, 128}) check({5, 3, dim}, counting(5, 17));
  check({1, 1, 2}, {599});
  check({130, 2, 16}, counting(130));
  check({40, 12, 64}, counting(40), {}, 1.3);
  check({599, 4, 16}, counting(599));
}

TEST(Rotary, PositionsRepeatAndJump) {
  check({6, 2, 8}, {3, 3, 0, 599, 1, 3});
  check({7, 4, 64}, {0, 1, 2, 0, 1, 0, 0});
}

TEST(Rotary, StridedInputs) {
  check({5, 4, 16}, counting(5), Padding{1, 0, 2});   // queries of a fused tensor
  check({5, 2, 16}, counting(5), Padding{1, 4, 2});   // its keys
  check({3, 2, 80}, counting(3), Padding{2, 16, 0});  // the rotated part of a head
  check({3, 2, 8}, counting(3), Padding{0, 1, 1});
}

TEST(Rotary, NoTokens) { check({0, 2, 8}, {}); }

TEST(Rotary, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Rotary>("eager", {});
  Tape tape;
  const Tensor x = Tensor::zeros({2, 3, 8}, DType::kF32), positions = ints({0, 9});
  const Tables good = tables(10, 4);
  const auto call = [&](const Tensor& x, const Tensor& positions, const Tensor& cos, const Tensor& sin) {
    return [=, &tape, &ops] { rotary(tape, ops, tape.constant(x), positions, cos, sin); };
  };
  const auto with_x = [&](const Tensor& other) { return call(other, positions, good.cos, good.sin); };
  const auto with_positions = [&](const Tensor& other) { return call(x, other, good.cos, good.sin); };
  expect_error(with_x({}), "[rotary_pos_emb] x is missing");
  expect_error(with_x(x.reshape({6, 8})), "[rotary_pos_emb] x is [6, 8], needs 3 dimensions");
  expect_error(with_x(Tensor::zeros({2, 3, 8}, DType::kI32)),
               "[rotary_pos_emb] x is int32, needs float32, bfloat16 or float16");
  expect_error(with_x(x.transpose(1, 2)),
               "[rotary_pos_emb] x [2, 8, 3] has strides [24, 1, 8], needs them without gaps");
  expect_error(with_x(x.narrow(2, 0, 7)), "[rotary_pos_emb] head_dim is 7, needs an even number");
  expect_error(with_positions(ints({0})), "[rotary_pos_emb] positions is [1], needs [2]");
  expect_error(with_positions(Tensor::zeros({2}, DType::kI64)),
               "[rotary_pos_emb] positions is int64, needs int32");
  expect_error(with_positions(ints({0, 10})),
               "[rotary_pos_emb] position 10 is outside the 10 positions of the model's context");
  expect_error(with_positions(ints({-1, 0})),
               "[rotary_pos_emb] position -1 is outside the 10 positions of the model's context");
  expect_error(call(x, positions, good.cos.reshape({40}), good.sin),
               "[rotary_pos_emb] cos is [40], needs 2 dimensions");
  expect_error(call(x, positions, tables(10, 3).cos, good.sin),
               "[rotary_pos_emb] cos is [10, 3], needs [10, 4]");
  expect_error(call(x, positions, good.cos, tables(9, 4).sin),
               "[rotary_pos_emb] sin is [9, 4], needs [10, 4]");
  expect_error(call(x, positions, good.cos.to(DType::kBF16), good.sin),
               "[rotary_pos_emb] cos is bfloat16, needs float32");
  expect_error(call(x, positions, good.cos, good.sin.to(DType::kBF16)),
               "[rotary_pos_emb] sin is bfloat16, needs float32");
  const Tensor wide = tables(10, 8).cos.narrow(1, 0, 4);
  expect_error(call(x, positions, wide, good.sin),
               "[rotary_pos_emb] cos [10, 4] has strides [8, 1], needs them without gaps");
  expect_error(call(x, positions, good.cos, wide),
               "[rotary_pos_emb] sin [10, 4] has strides [8, 1], needs them without gaps");
}

}  // namespace
}  // namespace temper::ops
