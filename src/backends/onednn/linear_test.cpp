#include "backends/onednn/onednn.h"
#include "backends/onednn/product.h"
#include "backends/test_support.h"

namespace temper::backends {
namespace {

using namespace ops;

class Onednn : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, Onednn, testing::Values(DType::kF32, DType::kBF16));

struct LinearSize {
  int64_t rows, in, out;
  bool bias;
};

TEST_P(Onednn, Linear) {
  for (const LinearSize c :
       {LinearSize{1, 64, 96, true}, LinearSize{3, 33, 5, false}, LinearSize{7, 600, 130, true},
        LinearSize{17, 64, 64, false}, LinearSize{300, 70, 270, true}, LinearSize{256, 700, 256, false},
        LinearSize{600, 600, 300, true}})
    expect_faithful("onednn", GetParam(), [&](const std::string& provider) {
      const BoundOps ops = bind<Linear>(provider, {GetParam(), c.in, c.out, c.bias});
      Tape tape;
      const Var x = tape.variable(random_tensor({c.rows, c.in}, GetParam(), 1));
      const Var weight = tape.variable(random_tensor({c.out, c.in}, GetParam(), 2));
      const Var bias = c.bias ? tape.variable(random_tensor({c.out}, GetParam(), 3)) : Var{};
      weight.slot->set_buffer(random_tensor({c.out, c.in}, DType::kF32, 4));
      if (c.bias) weight.slot->target(weight.value);  // what is there counts
      const Var y = linear(tape, ops, x, weight, bias);
      tape.backward(y, random_tensor(y.shape(), GetParam(), 5));
      return Results{y.value, x.slot->grad(), weight.slot->grad(), c.bias ? bias.slot->grad() : x.value};
    });
}

TEST_P(Onednn, LinearWithoutRows) {
  const Tensor x = Tensor::empty({0, 8}, GetParam()), weight = random_tensor({6, 8}, GetParam(), 1);
  const Linear op{x, weight, {}};
  EXPECT_EQ(linear_kernel().forward(op).shape(), (Shape{0, 6}));
  const GradTarget target{random_tensor({6, 8}, DType::kF32, 2)};
  const Tensor dx = linear_kernel().backward(op, Tensor::empty({0, 6}, GetParam()), true, target, {});
  EXPECT_EQ(dx.shape(), x.shape());
  EXPECT_TRUE(same_bits(target.buffer, Tensor::zeros({6, 8}, DType::kF32)));
}

// Both ways of multiplying bfloat16 agree; only their speed differs.
TEST(Product, NativeBf16AgreesWithWidened) {
  if (bf16_path() != Bf16Path::kNative) GTEST_SKIP() << "this processor does not multiply bfloat16";
  const Tensor a = random_tensor({200, 300}, DType::kBF16, 1), b = random_tensor({270, 300}, DType::kBF16, 2);
  const Tensor dy = random_tensor({200, 270}, DType::kBF16, 3), bias = random_tensor({270}, DType::kBF16, 4);
  const auto both = [&](const Product& product) {
    const Tensor expected = product.c.clone();
    Product other = product;
    other.c = expected;
    multiply(product, Bf16Path::kNative);
    multiply(other, Bf16Path::kWiden);
    EXPECT_LT(difference(product.c, expected), product.c.dtype() == DType::kF32 ? 1e-5 : 1e-2);
  };
  both({rows_of(a), transpose_of(b), 300, random_tensor({200, 270}, DType::kBF16, 5), bias, false});
  const Tensor long_x = random_tensor({1100, 64}, DType::kBF16, 6),
               long_dy = random_tensor({1100, 96}, DType::kBF16, 7);
  both({transpose_of(long_dy), rows_of(long_x), 1100, random_tensor({96, 64}, DType::kF32, 5), {}, true});
  both({transpose_of(dy), rows_of(a), 200, random_tensor({270, 300}, DType::kF32, 5), {}, true});
  both({transpose_of(dy), rows_of(a), 200, random_tensor({270, 300}, DType::kBF16, 5), {}, true});
  both({rows_of(dy), rows_of(b), 270, random_tensor({200, 300}, DType::kF32, 5), {}, false});
}

}  // namespace
}  // namespace temper::backends
