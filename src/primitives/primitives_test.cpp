#include "primitives/primitives.h"

#include <algorithm>
#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::primitives {
namespace {

using namespace op_testing;

using Function = std::function<Var(Tape&, const std::vector<Var>&)>;

// Against a double reference and its central differences, in every floating-point dtype.
void check(std::string name, std::vector<Input> inputs,
           std::function<Doubles(const std::vector<Doubles>&)> reference, Function function,
           double roundings = 1) {
  Case c;
  c.name = std::move(name);
  c.inputs = std::move(inputs);
  c.reference = std::move(reference);
  c.run = [function = std::move(function)](Tape& tape, const ops::BoundOps&, const std::vector<Var>& v) {
    return Result{function(tape, v), {}};
  };
  c.terms = 64;
  c.roundings = roundings;
  c.view = true;
  check_primitives(c);
}

Input input(uint64_t seed, const Shape& shape, double scale = 1, double mean = 0) {
  return {"input " + std::to_string(seed), shape, normal(seed, shape, scale, mean)};
}

// Inputs away from zero, where 1/x and log are gentle.
Input positive(uint64_t seed, const Shape& shape) {
  Input in = input(seed, shape, 0.5);
  for (double& value : in.values) value = std::exp(value);
  return in;
}

// Sizes padded with ones at the left to four dimensions.
std::array<int64_t, 4> four(const Shape& shape) {
  std::array<int64_t, 4> sizes{1, 1, 1, 1};
  for (int d = 0; d < shape.ndim(); ++d) sizes[static_cast<size_t>(4 - shape.ndim() + d)] = shape[d];
  return sizes;
}

Doubles broadcast(const Shape& a, const Shape& b, const Doubles& x, const Doubles& y,
                  double (*f)(double, double)) {
  const auto sa = four(a), sb = four(b);
  std::array<int64_t, 4> n{}, i{};
  for (size_t d = 0; d < 4; ++d) n[d] = sa[d] == 1 ? sb[d] : sa[d];
  const auto at = [&](const std::array<int64_t, 4>& sizes) {
    int64_t index = 0;
    for (size_t d = 0; d < 4; ++d) index = index * sizes[d] + (sizes[d] == 1 ? 0 : i[d]);
    return static_cast<size_t>(index);
  };
  Doubles out;
  for (i[0] = 0; i[0] < n[0]; ++i[0])
    for (i[1] = 0; i[1] < n[1]; ++i[1])
      for (i[2] = 0; i[2] < n[2]; ++i[2])
        for (i[3] = 0; i[3] < n[3]; ++i[3]) out.push_back(f(x[at(sa)], y[at(sb)]));
  return out;
}

void check_binary(const std::string& name, const Shape& a, const Shape& b,
                  Var (*function)(Tape&, const Var&, const Var&), double (*f)(double, double)) {
  check(
      fmt::format("{} of {} and {}", name, to_string(a), to_string(b)), {input(1, a), positive(2, b)},
      [=](const std::vector<Doubles>& v) { return broadcast(a, b, v[0], v[1], f); },
      [function](Tape& tape, const std::vector<Var>& v) { return function(tape, v[0], v[1]); });
}

TEST(Primitives, ArithmeticBroadcasts) {
  const std::vector<std::pair<Shape, Shape>> shapes{
      {{5}, {5}},       {{2, 3, 4}, {2, 3, 4}}, {{4, 3}, {3}},       {{3}, {4, 3}},
      {{4, 3}, {4, 1}}, {{1}, {2, 5}},          {{2, 1, 3}, {4, 1}}, {{2, 3, 2, 5}, {3, 1, 5}},
      {{3, 2}, {1, 1}}, {{0, 3}, {3}},          {{1, 3}, {0, 1}},    {{}, {2, 2}},
      {{}, {}}};
  for (const auto& [a, b] : shapes) {
    if (a.ndim() == 0 && b.ndim() == 0) continue;
    check_binary("add", a, b, add, [](double x, double y) { return x + y; });
    check_binary("sub", a, b, sub, [](double x, double y) { return x - y; });
    check_binary("mul", a, b, mul, [](double x, double y) { return x * y; });
    check_binary("div", a, b, div, [](double x, double y) { return x / y; });
  }
}

TEST(Primitives, AValueMayMeetItself) {
  check(
      "x · x", {input(1, {3, 4})},
      [](const std::vector<Doubles>& v) {
        Doubles out;
        for (const double x : v[0]) out.push_back(x * x);
        return out;
      },
      [](Tape& tape, const std::vector<Var>& v) { return mul(tape, v[0], v[0]); }, 2);
}

void check_unary(const std::string& name, const Input& in, Var (*function)(Tape&, const Var&),
                 double (*f)(double)) {
  check(
      fmt::format("{} of {}", name, to_string(in.shape)), {in},
      [f](const std::vector<Doubles>& v) {
        Doubles out;
        for (const double x : v[0]) out.push_back(f(x));
        return out;
      },
      [function](Tape& tape, const std::vector<Var>& v) { return function(tape, v[0]); });
}

TEST(Primitives, FunctionsOfOneValue) {
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 5}, Shape{40'000}, Shape{0}}) {
    check_unary("exp", input(1, shape), exp, [](double x) { return std::exp(x); });
    check_unary("log", positive(1, shape), log, [](double x) { return std::log(x); });
    check_unary("rsqrt", positive(1, shape), rsqrt, [](double x) { return 1 / std::sqrt(x); });
    check_unary("sigmoid", input(1, shape, 3), sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
    check_unary("erf", input(1, shape), erf, [](double x) { return std::erf(x); });
    check_unary("softplus", input(1, shape, 3), softplus, [](double x) { return std::log1p(std::exp(x)); });
    check_unary(
        "scale", input(1, shape), [](Tape& tape, const Var& x) { return scale(tape, x, -1.5f); },
        [](double x) { return -1.5 * x; });
    check_unary(
        "add_scalar", input(1, shape), [](Tape& tape, const Var& x) { return add_scalar(tape, x, 0.75f); },
        [](double x) { return x + 0.75; });
  }
  check_unary(
      "clamp", input(1, {50}), [](Tape& tape, const Var& x) { return clamp(tape, x, -0.5f, 0.75f); },
      [](double x) { return std::clamp(x, -0.5, 0.75); });
  check_unary("sigmoid", input(1, {20}, 80), sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
  check_unary("erf", input(1, {20}, 10), erf, [](double x) { return std::erf(x); });
  check_unary("softplus", input(1, {20}, 80), softplus,
              [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); });
}

TEST(Primitives, StridedInputs) {
  Input wide = input(1, {4, 3});
  wide.padding = {1, 2, 1};
  check_unary("exp", wide, exp, [](double x) { return std::exp(x); });
  check_unary(
      "reshape", wide,
      [](Tape& tape, const Var& x) {
        return reshape(tape, x, {2, -1});
      },
      [](double x) { return x; });
}

Doubles product(int64_t batch, int64_t m, int64_t k, int64_t n, bool flip, const std::vector<Doubles>& v) {
  Doubles out;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += v[0][(b * m + i) * k + l] * v[1][b * k * n + (flip ? j * k + l : l * n + j)];
        out.push_back(sum);
      }
  return out;
}

TEST(Primitives, Matmul) {
  for (const bool flip : {false, true})
    for (const auto& [batch, m, k, n] : std::vector<std::array<int64_t, 4>>{{0, 1, 1, 1},
                                                                            {0, 3, 5, 4},
                                                                            {0, 33, 17, 40},
                                                                            {0, 0, 3, 2},
                                                                            {0, 2, 0, 3},
                                                                            {1, 2, 3, 4},
                                                                            {3, 5, 7, 2}}) {
      Shape a{m, k}, b = flip ? Shape{n, k} : Shape{k, n};
      if (batch > 0) {
        a = {batch, m, k};
        b = flip ? Shape{batch, n, k} : Shape{batch, k, n};
      }
      check(
          fmt::format("{} times {}{}", to_string(a), to_string(b), flip ? " transposed" : ""),
          {input(1, a), input(2, b)},
          [=, batch = batch, m = m, k = k, n = n](const std::vector<Doubles>& v) {
            return product(std::max<int64_t>(batch, 1), m, k, n, flip, v);
          },
          [flip](Tape& tape, const std::vector<Var>& v) {
            return matmul(tape, v[0], v[1], {.transpose_b = flip});
          });
    }
}

TEST(Primitives, NormalizeLast) {
  check(
      "normalize", {input(1, {5, 12}), input(2, {12}, 0.3, 1)},
      [](const std::vector<Doubles>& v) {
        Doubles out;
        for (size_t row = 0; row < 60; row += 12) {
          double sum = 0;
          for (size_t i = 0; i < 12; ++i) sum += v[0][row + i] * v[0][row + i];
          for (size_t i = 0; i < 12; ++i) out.push_back(v[0][row + i] / std::sqrt(sum / 12 + 0.1) * v[1][i]);
        }
        return out;
      },
      [](Tape& tape, const std::vector<Var>& v) { return normalize_last(tape, v[0], v[1], 0.1f); }, 6);
}

TEST(Primitives, Reductions) {
  for (const Shape& shape :
       {Shape{1}, Shape{9}, Shape{4, 5}, Shape{2, 3, 100}, Shape{0, 3}, Shape{3, 0}, Shape{0}}) {
    const int64_t width = shape[shape.ndim() - 1];
    const auto sums = [shape, width](const std::vector<Doubles>& v) {
      Doubles out(
          static_cast<size_t>(width == 0 ? (shape.ndim() == 1 ? 1 : shape[0]) : shape.numel() / width));
      for (size_t i = 0; i < v[0].size(); ++i) out[i / static_cast<size_t>(width)] += v[0][i];
      return out;
    };
    check("sum over the last of " + to_string(shape), {input(1, shape)}, sums,
          [](Tape& tape, const std::vector<Var>& v) { return sum_last(tape, v[0]); });
  }
}

TEST(Primitives, Largest) {
  Tape tape;
  const Tensor x = tensor_of({1, 5, 3, -7, -2, -9}, {2, 3}, DType::kF32);
  for (const HardwareFacts& machine : machines()) {
    const Var largest = max_last(tape, tape.variable(x.on(machine.device)));
    EXPECT_EQ(largest.shape(), (Shape{2, 1}));
    EXPECT_EQ(values_of(largest.value), (Doubles{5, -2}));
    EXPECT_FALSE(largest.requires_grad());
  }
  expect_error(
      [&] {
        max_last(tape, tape.constant(Tensor::zeros({2, 0}, DType::kF32)));
      },
      "the largest of no values: [2, 0]");
}

// Side by side and on several threads: each row has the bits of a sum of its own.
TEST(Primitives, SumsAndLargestOfManyRows) {
  Tape tape(false);
  for (const int64_t rows : {1, 3, 4, 37})
    for (const int64_t width : {1, 300, 5000}) {
      const Doubles values = normal(5, {rows, width});
      const Tensor x = Tensor::from(std::vector<float>(values.begin(), values.end())).reshape({rows, width});
      const Tensor sums = sum_last(tape, tape.constant(x)).value,
                   most = max_last(tape, tape.constant(x)).value;
      for (int64_t r = 0; r < rows; ++r) {
        const float* const row = x.data<float>() + r * width;
        double sum = 0;
        for (int64_t i = 0; i < width; ++i) sum += row[i];
        ASSERT_EQ(sums.data<float>()[r], static_cast<float>(sum)) << rows << ", " << width;
        ASSERT_EQ(most.data<float>()[r], *std::max_element(row, row + width)) << rows << ", " << width;
      }
    }
}

}  // namespace
}  // namespace temper::primitives
