// A parameter in 4 bits whose rows come in pieces, or as codes, all of it or the part that a rank keeps.
#include "layers/parameters/nf4_weight.h"

#include "tests/support/op_testing.h"

namespace temper::layers {
namespace {

using namespace op_testing;

// [rows of a + rows of b, 64]: two sources on top of one another.
WeightSpec two_sources(int64_t a, int64_t b) {
  WeightSpec spec;
  spec.name = "qk";
  spec.shape = {a + b, 64};
  spec.sources = {{.name = "a", .rows = a}, {.name = "b", .rows = b}};
  return spec;
}

Tensor values(int64_t rows, uint64_t seed) {
  return tensor_of(normal(seed, {rows, 64}), {rows, 64}, DType::kF32);
}

// Both sources encoded each by itself, without a weight.
Doubles expected(const Tensor& a, const Tensor& b, bool is_double) {
  const primitives::Nf4Matrix matrix = primitives::empty_nf4({a.dim(0), b.dim(0)}, 64, is_double, Device());
  primitives::set_nf4(matrix, 0, quant::encode_nf4("a", a, is_double));
  primitives::set_nf4(matrix, a.dim(0), quant::encode_nf4("b", b, is_double));
  return values_of(primitives::dequantized(matrix, DType::kF32));
}

TEST(Nf4Weight, IsEncodedSourceBySourceHoweverItsRowsCome) {
  const Tensor a = values(6, 1), b = values(5, 2);
  for (const bool is_double : {false, true}) {
    const WeightSpec spec = two_sources(6, 5);
    const Placement all(spec.shape);
    Nf4Weight weight(spec, all, is_double, Device());
    weight.set_rows(0, a.narrow(0, 0, 2));
    weight.set_rows(2, a.narrow(0, 2, 4));
    weight.set_rows(6, b.narrow(0, 0, 5));
    EXPECT_EQ(values_of(primitives::dequantized(weight.matrix(), DType::kF32)), expected(a, b, is_double));
    Nf4Weight coded(spec, all, is_double, Device());
    coded.set_encoded("a", 0, quant::encode_nf4("a", a, is_double));
    coded.set_encoded("b", 6, quant::encode_nf4("b", b, is_double));
    EXPECT_EQ(values_of(primitives::dequantized(coded.matrix(), DType::kF32)), expected(a, b, is_double));
  }
}

TEST(Nf4Weight, KeepsItsPartOfCodesThatComeAndGo) {
  const Tensor a = values(6, 1), b = values(4, 2);
  const WeightSpec spec = two_sources(6, 4);
  const Placement all(spec.shape);
  std::vector<uint8_t> codes;
  for (int rank = 0; rank < 2; ++rank) {
    const Placement half = all.flat(2, rank);
    Nf4Weight weight(spec, half, false, Device());
    EXPECT_FALSE(weight.matrix().codes.defined());
    weight.set_rows(0, a);
    weight.set_rows(6, b);
    EXPECT_FALSE(weight.matrix().codes.defined());
    for (const uint8_t code : weight.part().values<uint8_t>()) codes.push_back(code);
  }
  Nf4Weight whole(spec, all, false, Device());
  whole.set_rows(0, a);
  whole.set_rows(6, b);
  const auto expected = whole.matrix().codes.values<uint8_t>();
  EXPECT_EQ(codes, std::vector<uint8_t>(expected.begin(), expected.end()));
}

TEST(Nf4Weight, RefusesWhatItCannotHold) {
  WeightSpec odd = two_sources(2, 2);
  odd.shape = {4, 63};
  const Placement all(odd.shape);
  expect_error([&] { Nf4Weight(odd, all, false, Device()); },
               "qk has 63 columns, of 63: two codes of nf4 share a byte");
  const WeightSpec spec = two_sources(2, 2);
  const Placement fits(spec.shape);
  Nf4Weight weight(spec, fits, false, Device());
  EXPECT_THROW(weight.set_rows(1, values(1, 3)), Error);  // not from the first to the last
}

}  // namespace
}  // namespace temper::layers
