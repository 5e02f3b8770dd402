#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::primitives {
namespace {

using namespace op_testing;

// Views and copies move elements: y[i] = inputs[from[i].first][from[i].second], here as one list of all
// inputs.
void check_view(std::string name, std::vector<Input> inputs, std::vector<size_t> from,
                const std::function<Var(Tape&, const std::vector<Var>&)>& function) {
  Case c;
  c.name = std::move(name);
  c.inputs = std::move(inputs);
  c.reference = [from = std::move(from)](const std::vector<Doubles>& v) {
    Doubles all, y;
    for (const Doubles& values : v) all.insert(all.end(), values.begin(), values.end());
    for (const size_t i : from) y.push_back(all[i]);
    return y;
  };
  c.run = [function](Tape& tape, const ops::BoundOps&, const std::vector<Var>& v) {
    return Result{function(tape, v), {}};
  };
  c.view = true;
  check_primitives(c);
}

Input view_input(uint64_t seed, const Shape& shape, Role role = Role::kVariable) {
  return {"input " + std::to_string(seed), shape, normal(seed, shape), role};
}

TEST(Views, Reshape) {
  check_view("reshape", {view_input(1, {2, 3})}, {0, 1, 2, 3, 4, 5},
             [](Tape& tape, const std::vector<Var>& v) {
               return reshape(tape, v[0], {3, -1});
             });
  Tape tape;
  expect_error(
      [&] {
        reshape(tape, tape.constant(Tensor::zeros({2, 3}, DType::kF32)), {4, 2});
      },
      "cannot view [2, 3] as [4, 2]");
}

TEST(Views, Transpose) {
  check_view("transpose", {view_input(1, {2, 3}, Role::kParameter)}, {0, 3, 1, 4, 2, 5},
             [](Tape& tape, const std::vector<Var>& v) { return transpose(tape, v[0], 0, 1); });
  check_view("transpose of the outer two", {view_input(1, {2, 2, 2})}, {0, 1, 4, 5, 2, 3, 6, 7},
             [](Tape& tape, const std::vector<Var>& v) { return transpose(tape, v[0], 1, 0); });
}

TEST(Views, Split) {
  check_view("columns, put together in another order", {view_input(1, {2, 4})}, {3, 0, 7, 4},
             [](Tape& tape, const std::vector<Var>& v) {
               const std::vector<Var> parts = split(tape, v[0], 1, {1, 2, 1});
               return concat_last(tape, parts[2], parts[0]);
             });
  check_view("rows", {view_input(1, {4, 2})}, {6, 7, 0, 1, 2, 3}, [](Tape& tape, const std::vector<Var>& v) {
    const std::vector<Var> parts = split(tape, v[0], 0, {2, 1, 1});
    return concat_first(tape, {parts[2], parts[0]});
  });
}

TEST(Views, Narrow) {
  check_view("columns", {view_input(1, {2, 4}, Role::kParameter)}, {1, 2, 5, 6},
             [](Tape& tape, const std::vector<Var>& v) { return narrow(tape, v[0], 1, 1, 2); });
  check_view("rows", {view_input(1, {3, 2})}, {2, 3, 4, 5},
             [](Tape& tape, const std::vector<Var>& v) { return narrow(tape, v[0], 0, 1, 2); });
  check_view("nothing", {view_input(1, {3, 2})}, {},
             [](Tape& tape, const std::vector<Var>& v) { return narrow(tape, v[0], 0, 3, 0); });
  Tape tape;
  expect_error(
      [&] {
        narrow(tape, tape.constant(Tensor::zeros({2, 3}, DType::kF32)), 1, 2, 2);
      },
      "rows 2 to 4 of dimension 1 of [2, 3]");
}

TEST(Views, PartsOverlapAndAddUp) {
  check_view("x[0:2] and x[1:3]", {view_input(1, {3, 2})}, {0, 1, 2, 3, 2, 3, 4, 5},
             [](Tape& tape, const std::vector<Var>& v) {
               return concat_first(tape, {narrow(tape, v[0], 0, 0, 2), narrow(tape, v[0], 0, 1, 2)});
             });
}

TEST(Views, Concatenation) {
  check_view("first", {view_input(1, {1, 2}), view_input(2, {0, 2}), view_input(3, {2, 2}, Role::kParameter)},
             {0, 1, 2, 3, 4, 5}, [](Tape& tape, const std::vector<Var>& v) { return concat_first(tape, v); });
  check_view("last", {view_input(1, {2, 1}), view_input(2, {2, 2})}, {0, 2, 3, 1, 4, 5},
             [](Tape& tape, const std::vector<Var>& v) { return concat_last(tape, v[0], v[1]); });
  Tape tape;
  const Var x = tape.constant(Tensor::zeros({2, 3}, DType::kF32)),
            tall = tape.constant(Tensor::zeros({3, 3}, DType::kF32)),
            wide = tape.constant(Tensor::zeros({2, 4}, DType::kF32)),
            half = tape.constant(Tensor::zeros({2, 3}, DType::kBF16));
  expect_error([&] { concat_first(tape, {}); }, "concatenation of nothing");
  expect_error([&] { concat_first(tape, {x, wide}); }, "cannot copy [2, 4] into [2, 3]");
  expect_error([&] { concat_first(tape, {x, half}); }, "float32 combined with bfloat16");
  expect_error([&] { concat_last(tape, x, tall); }, "cannot copy [3, 3] into [2, 3]");
  expect_error([&] { concat_last(tape, x, half); }, "float32 combined with bfloat16");
}

TEST(Views, Gather) {
  check_view("rows", {view_input(1, {4, 2}, Role::kParameter)}, {6, 7, 0, 1, 6, 7, 6, 7},
             [](Tape& tape, const std::vector<Var>& v) {
               return gather_rows(tape, v[0], {on_device_of(v[0], ints({3, 0, 3, 3})), 4, true});
             });
  check_view(
      "rows of heads, some of them nowhere", {view_input(1, {3, 2, 8})},
      [] {
        std::vector<size_t> from;
        for (const size_t row : {1, 1, 0})
          for (size_t i = 0; i < 16; ++i) from.push_back(16 * row + i);
        return from;
      }(),
      [](Tape& tape, const std::vector<Var>& v) {
        return gather_rows(tape, v[0], {ints({1, 1, 0}), 3, true});
      });
  check_view("rows apart", {view_input(1, {3, 4})}, {9, 1, 9}, [](Tape& tape, const std::vector<Var>& v) {
    return gather_rows(tape, narrow(tape, v[0], 1, 1, 1), {ints({2, 0, 2}), 3, true});
  });
  check_view("one of each row", {view_input(1, {3, 4})}, {2, 4, 11},
             [](Tape& tape, const std::vector<Var>& v) {
               return take_last(tape, v[0], on_device_of(v[0], ints({2, 0, 3})));
             });
  check_view("some of each row, one of them twice", {view_input(1, {3, 4})}, {2, 0, 5, 5, 11, 8},
             [](Tape& tape, const std::vector<Var>& v) {
               return take_last(tape, v[0], on_device_of(v[0], ints({2, 0, 1, 1, 3, 0})));
             });
  Tape tape;
  for (const HardwareFacts& machine : machines()) {
    const Var x = tape.constant(Tensor::zeros({3, 4}, DType::kF32).on(machine.device));
    const Tensor put = put_last(tensor_of({1, 2, 3, 4, 5, 6}, {3, 2}, DType::kF32).on(machine.device),
                                ints({2, 0, 1, 1, 3, 0}), 4);
    EXPECT_EQ(values_of(put), (Doubles{2, 0, 1, 0, 0, 7, 0, 0, 6, 0, 0, 5}));
    EXPECT_EQ(take_last(tape, x, ints({2, 0, 3})).shape(), (Shape{3, 1}));
    expect_error([&] { gather_rows(tape, x, {on_device_of(x, ints({3})), 3, false}); }, "row 3 of 3");
    expect_error(
        [&] {
          gather_rows(tape, x, {on_device_of(x, ints({3})), 4, false});
        },
        "rows of 4 in all, of [3, 4]");
    expect_error([&] { take_last(tape, x, on_device_of(x, ints({0, 4, 0}))); }, "column 4 of [3, 4]");
    expect_error([&] { take_last(tape, x, on_device_of(x, ints({0, -1, 0}))); }, "column -1 of [3, 4]");
    expect_error([&] { take_last(tape, x, on_device_of(x, ints({0, 0}))); }, "2 columns taken from [3, 4]");
  }
}

TEST(Views, Cast) {
  Tape tape;
  const Var x = tape.variable(tensor_of({1, 2.5}, {2}, DType::kF32));
  const Var y = cast(tape, x, DType::kBF16);
  EXPECT_EQ(y.dtype(), DType::kBF16);
  EXPECT_EQ(cast(tape, y, DType::kBF16).slot, y.slot) << "nothing to do: the same value";
  tape.backward(y, tensor_of({3, 1.5}, {2}, DType::kBF16));
  EXPECT_EQ(x.slot->grad().dtype(), DType::kF32);
  EXPECT_EQ(values_of(x.slot->grad()), (Doubles{3, 1.5}));
}

TEST(Views, TwoDevicesAreAnError) {
  Tape tape;
  for (const HardwareFacts& machine : machines()) {
    if (machine.device == Device{}) continue;
    const Tensor x = Tensor::zeros({2, 2}, DType::kF32);
    const Var here = tape.constant(x), there = tape.constant(x.on(machine.device));
    expect_error([&] { add(tape, here, there); }, "a tensor on cpu combined with one on cuda:0");
    expect_error([&] { matmul(tape, there, here); }, "a tensor on cuda:0 combined with one on cpu");
  }
}

TEST(Views, TwoDTypesOrShapesThatDoNotFitAreErrors) {
  Tape tape;
  const auto zeros = [&](Shape shape, DType dtype = DType::kF32) {
    return tape.constant(Tensor::zeros(shape, dtype));
  };
  expect_error([&] { add(tape, zeros({2, 3}), zeros({2})); }, "cannot broadcast [2, 3] with [2]");
  expect_error([&] { mul(tape, zeros({2}), zeros({2}, DType::kF16)); }, "float32 combined with float16");
  expect_error([&] { matmul(tape, zeros({2, 3}), zeros({2, 3})); }, "matmul of [2, 3] and [2, 3]");
  expect_error(
      [&] {
        matmul(tape, zeros({2, 3}), zeros({3, 2}), {.transpose_b = true});
      },
      "matmul of [2, 3] and [3, 2] transposed");
  expect_error(
      [&] {
        matmul(tape, zeros({2, 3}), zeros({1, 3, 2}));
      },
      "matmul of float32 [2, 3] and float32 [1, 3, 2]");
  expect_error(
      [&] {
        matmul(tape, zeros({2, 3}), zeros({3, 2}, DType::kBF16));
      },
      "matmul of float32 [2, 3] and bfloat16 [3, 2]");
  expect_error(
      [&] {
        matmul(tape, zeros({2, 3, 4}), zeros({3, 4, 2}));
      },
      "matmul of [2, 3, 4] and [3, 4, 2]");
}

}  // namespace
}  // namespace temper::primitives
