#include "layers/glue.h"

#include <cmath>

#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::layers {
namespace {

using namespace op_testing;

// Two groups of [q q | v | z], by row.
TEST(Glue, GroupsOfColumns) {
  Case c;
  c.name = "groups of columns";
  c.inputs = {{"x", {3, 8}, normal(1, {3, 8})}};
  c.reference = [](const std::vector<Doubles>& inputs) {
    Doubles y;
    for (size_t row = 0; row < 24; row += 8)
      for (const size_t column : {0, 1, 4, 5, 2, 6, 3, 7}) y.push_back(inputs[0][row + column]);
    return y;
  };
  c.run = [](Tape& tape, const ops::BoundOps&, const std::vector<Var>& v) {
    const std::vector<Var> parts = ungroup_columns(tape, v[0], 2, {{2, 1}, {1}});
    EXPECT_EQ(parts[0].shape(), (Shape{3, 6}));
    return Result{join_columns(tape, parts), {}};
  };
  check_primitives(c);
  c.name = "one of the results alone";
  c.reference = [](const std::vector<Doubles>& inputs) {
    return Doubles{inputs[0][3], inputs[0][7], inputs[0][11], inputs[0][15], inputs[0][19], inputs[0][23]};
  };
  c.run = [](Tape& tape, const ops::BoundOps&, const std::vector<Var>& v) {
    return Result{ungroup_columns(tape, v[0], 2, {{2, 1}, {1}})[1], {}};
  };
  check_primitives(c);
}

TEST(Glue, HeadsAreViews) {
  Case c;
  c.name = "heads";
  c.inputs = {{"x", {2, 6}, normal(1, {2, 6}), Role::kVariable, Padding{1, 1, 2}}};
  c.reference = [](const std::vector<Doubles>& inputs) { return inputs[0]; };
  c.run = [](Tape& tape, const ops::BoundOps&, const std::vector<Var>& v) {
    const Var heads = split_heads(tape, v[0], 2);
    EXPECT_EQ(heads.shape(), (Shape{2, 3, 2}));
    EXPECT_EQ(heads.value.raw(), v[0].value.raw());
    return Result{heads, {}};
  };
  c.view = true;
  check_primitives(c);
}

TEST(Glue, SigmoidsOfGates) {
  for (const int64_t width : {1, 5}) {
    Case c;
    c.name = fmt::format("a gate of {}", width);
    c.inputs = {{"x", {3, 5}, normal(1, {3, 5})}, {"gate", {3, width}, normal(2, {3, width}, 2)}};
    c.reference = [width](const std::vector<Doubles>& inputs) {
      Doubles y;
      for (int64_t i = 0; i < 15; ++i)
        y.push_back(inputs[0][i] / (1 + std::exp(-inputs[1][width == 1 ? i / 5 : i])));
      return y;
    };
    c.run = [](Tape& tape, const ops::BoundOps&, const std::vector<Var>& v) {
      return Result{sigmoid_gated(tape, v[0], v[1]), {}};
    };
    check_primitives(c);
  }
}

}  // namespace
}  // namespace temper::layers
