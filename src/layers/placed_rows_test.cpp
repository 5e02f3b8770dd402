#include "layers/placed_rows.h"

#include "tests/support/errors.h"
#include "tests/support/op_testing.h"

namespace temper::layers {
namespace {

using namespace op_testing;

constexpr int64_t kTokens = 9, kHidden = 3;
const std::vector<TokenRange> kRanges{{0, 2}, {4, 1}, {5, 2}};  // two of them are neighbours
constexpr int64_t kRows = 5;

// The token of each row, one by one.
const std::vector<int64_t> kTokenOf{0, 1, 4, 5, 6};

// Over all tokens, or over those that a rank has in its part of the stream: `here` says where each stands.
void check(const std::string& name, const RowPlaces& places, const std::vector<int64_t>& here, bool adds) {
  const Shape stream{std::ssize(here), kHidden}, rows{kRows, kHidden};
  Case c;
  c.name = name;
  c.inputs = {{"x", stream, normal(1, stream)}, {"rows", rows, normal(2, rows)}};
  c.reference = [=](const std::vector<Doubles>& inputs) {
    Doubles y = inputs[0];
    for (size_t at = 0; at < here.size(); ++at)
      for (size_t row = 0; row < kTokenOf.size(); ++row)
        for (int64_t i = 0; i < kHidden && kTokenOf[row] == here[at]; ++i) {
          double& value = y[at * kHidden + i];
          value = (adds ? value : 0) + inputs[1][row * kHidden + i];
        }
    return y;
  };
  c.run = [=](Tape& tape, const ops::BoundOps&, const std::vector<Var>& v) {
    return Result{adds ? places.add(tape, v[0], v[1]) : places.replace(tape, v[0], v[1]), {}};
  };
  check_primitives(c);
}

TEST(PlacedRows, ReplaceOrAddToTheirTokens) {
  const RowPlaces all(kRanges, {}, 0, kTokens);
  for (const bool adds : {false, true}) {
    check("all tokens", all, {0, 1, 2, 3, 4, 5, 6, 7, 8}, adds);
    // Tensor ranks have consecutive tokens of the stream each, the last one with padding behind them.
    check("the first part of the stream", {kRanges, {}, 0, 5}, {0, 1, 2, 3, 4}, adds);
    check("the second part of the stream", {kRanges, {}, 5, 5}, {5, 6, 7, 8, -1}, adds);
    // Context ranks have pieces of the row.
    for (int place = 0; place < 2; ++place) {
      const TokenCut cut({{{0, 1}, {5, 4}}, {{1, 4}}}, place);
      const std::vector<int64_t> own =
          place == 0 ? std::vector<int64_t>{0, 5, 6, 7, 8} : std::vector<int64_t>{1, 2, 3, 4};
      check(fmt::format("context rank {}", place), {kRanges, cut, 0, std::ssize(own)}, own, adds);
    }
    const TokenCut both({{{0, 1}, {5, 4}}, {{1, 4}}}, 0);
    check("a tensor rank of a context rank", {kRanges, both, 0, 2}, {0, 5}, adds);
    check("the next one", {kRanges, both, 2, 2}, {6, 7}, adds);
  }
}

// Embeddings of replaced tokens have a gradient of exactly zero, and so have rows whose tokens are elsewhere.
// None is left out: what ranks do together in a backward pass must not depend on where pictures are.
TEST(PlacedRows, WhatIsReplacedHasNoGradient) {
  const RowPlaces places(kRanges, {}, 0, kTokens);
  Tape tape;
  const Var x = tape.variable(tensor_of(normal(1, {kTokens, kHidden}), {kTokens, kHidden}, DType::kF32)),
            rows = tape.variable(tensor_of(normal(2, {kRows, kHidden}), {kRows, kHidden}, DType::kF32));
  const Var y = places.replace(tape, x, rows);
  tape.backward(y, tensor_of(Doubles(kTokens * kHidden, 1.0), y.shape(), DType::kF32));
  const Doubles dx = values_of(x.slot->take());
  for (int64_t token = 0; token < kTokens; ++token)
    EXPECT_EQ(dx[token * kHidden],
              std::find(kTokenOf.begin(), kTokenOf.end(), token) == kTokenOf.end() ? 1 : 0)
        << token;
  Tape other;
  const Var alone = other.variable(tensor_of(normal(1, {2, kHidden}), {2, kHidden}, DType::kF32)),
            elsewhere = other.variable(rows.value);
  const Var same = RowPlaces(kRanges, {}, 7, 2).add(other, alone, elsewhere);
  other.backward(same, tensor_of(Doubles(2 * kHidden, 1.0), same.shape(), DType::kF32));
  EXPECT_EQ(values_of(same.value), values_of(alone.value));
  EXPECT_EQ(values_of(elsewhere.slot->take()), Doubles(kRows * kHidden, 0.0));
  Tape covered;
  const Var hidden = covered.variable(tensor_of(normal(1, {2, kHidden}), {2, kHidden}, DType::kF32)),
            seen = covered.variable(rows.value);
  const Var only = RowPlaces(kRanges, {}, 0, 2).replace(covered, hidden, seen);
  covered.backward(only, tensor_of(Doubles(2 * kHidden, 1.0), only.shape(), DType::kF32));
  EXPECT_EQ(values_of(hidden.slot->take()), Doubles(2 * kHidden, 0.0));
}

TEST(PlacedRows, ContradictionsAreRefused) {
  const Tensor five = Tensor::zeros({kRows, kHidden}, DType::kF32);
  Tape tape;
  const Var rows = tape.constant(five);
  const auto error = [&](const PlacedRows& placed, DType dtype = DType::kF32) {
    return error_of([&] { check_placed_rows(placed, kTokens, kHidden, dtype); });
  };
  EXPECT_EQ(error({kRanges, rows, {rows}}), "");
  EXPECT_EQ(error({{{0, 2}, {1, 3}}, rows}),
            "rows for tokens 1 to 4, needs ranges that rise, from 2 on, within the 9 tokens of the pass");
  EXPECT_EQ(error({{{6, 5}}, rows}),
            "rows for tokens 6 to 11, needs ranges that rise, from 0 on, within the 9 tokens of the pass");
  expect_has(error({{{3, 0}}, rows}), "rows for tokens 3 to 3, needs ranges");
  EXPECT_EQ(error({{{0, 4}}, rows}),
            "rows in place of embeddings are float32 [5, 3], needs float32 [4, 3] for the tokens that they "
            "are given for");
  EXPECT_EQ(error({kRanges, rows}, DType::kBF16),
            "rows in place of embeddings are float32 [5, 3], needs bfloat16 [5, 3] for the tokens that they "
            "are given for");
  EXPECT_EQ(error({kRanges, Var{}}),
            "rows in place of embeddings are missing, needs float32 [5, 3] for the tokens that they are "
            "given for");
  expect_has(error({kRanges, rows, {rows, tape.constant(five.narrow(0, 0, 4))}}),
             "rows to add behind layer 1 are float32 [4, 3], needs float32 [5, 3]");
}

}  // namespace
}  // namespace temper::layers
