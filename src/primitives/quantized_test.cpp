#include "primitives/quantized.h"

#include <cmath>

#include "tests/support/errors.h"
#include "tests/support/op_testing.h"

namespace temper::primitives {
namespace {

using namespace op_testing;

struct Quantized {
  Tensor codes, scales;
};

Quantized quantize(const Tensor& values) {
  Quantized made{Tensor::empty(values.shape(), DType::kF8E4M3), Tensor::empty({values.dim(0)}, DType::kF32)};
  quantize_rows(values, made.codes, made.scales);
  return made;
}

TEST(Quantized, ScalesArePowersOfTwoThatFillTheCodes) {
  const Tensor values = tensor_of(normal(1, {200, 70}, 0.02), {200, 70}, DType::kF32);
  const auto [codes, scales] = quantize(values);
  for (int64_t row = 0; row < 200; ++row) {
    const float scale = scales.data<float>()[row];
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5f);
    float amax = 0;
    for (int64_t i = 0; i < 70; ++i) {
      const float value = values.data<float>()[row * 70 + i];
      amax = std::max(amax, std::abs(value));
      const auto code = static_cast<float>(codes.data<Float8E4M3>()[row * 70 + i]);
      // Half a unit of the last place, of three bits or of the smallest numbers.
      EXPECT_LE(std::abs(scale * code - value), std::max(std::abs(value) / 16, scale * 0x1p-10f));
    }
    EXPECT_GT(amax / scale, 224);
    EXPECT_LE(amax / scale, 448);
  }
}

TEST(Quantized, OfRowsAtTheEdges) {
  const float least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> rows{0, -0.f, 448, 1, 449, 1, 224, 1, least, -least, 0x1.fp119f, 1};
  const auto [codes, scales] = quantize(Tensor::from(rows).reshape({6, 2}));
  EXPECT_EQ(values_of(scales), (Doubles{1, 1, 2, 0.5, 0x1p-117, 0x1p112}));
  const Doubles back = values_of(dequantized(codes, scales, DType::kF32));
  EXPECT_EQ(back, (Doubles{0, 0, 448, 1, 448, 1, 224, 1, 0, 0, 0x1p120, 0}));
}

TEST(Quantized, ValuesThatCannotBeKeptAreRefused) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 0x1p120f})
    expect_has(error_of([&] {
                 quantize(Tensor::from(std::vector<float>{1, 2, 3, bad}).reshape({2, 2}));
               }),
               "row 1 holds a value that is not finite, or 2^120 and more");
}

// Every device, every width: the same bits, which are exact but in float16.
TEST(Quantized, EveryDeviceAgreesWithDouble) {
  for (const int64_t columns : {1, 16, 37, 64, 4112}) {
    const Shape shape{11, columns};
    const auto [codes, scales] = quantize(tensor_of(normal(3, shape, 0.05), shape, DType::kF32));
    Doubles exact;
    for (int64_t i = 0; i < codes.numel(); ++i)
      exact.push_back(double{scales.data<float>()[i / columns]} *
                      static_cast<float>(codes.data<Float8E4M3>()[i]));
    for (const HardwareFacts& machine : machines())
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        const Tensor y = dequantized(codes.on(machine.device), scales.on(machine.device), dtype);
        EXPECT_EQ(y.dtype(), dtype);
        const Doubles expected = dtype == DType::kF16 ? values_of(tensor_of(exact, shape, dtype)) : exact;
        EXPECT_EQ(values_of(y), expected) << machine.name << " " << to_string(dtype) << " " << columns;
      }
  }
}

TEST(Quantized, EveryCodeOnEveryDevice) {
  std::vector<Float8E4M3> all;
  for (int code = 0; code < 256; ++code) all.push_back(std::bit_cast<Float8E4M3>(static_cast<uint8_t>(code)));
  const Tensor codes = Tensor::from(all).reshape({1, 256}), scales = Tensor::from(std::vector<float>{0.25f});
  for (const HardwareFacts& machine : machines())
    for (const int64_t columns : {256, 250}) {
      const Tensor part = codes.narrow(1, 0, columns).contiguous().on(machine.device);
      const Doubles found = values_of(dequantized(part, scales.on(machine.device), DType::kBF16));
      for (int64_t i = 0; i < columns; ++i) {
        const auto code = static_cast<float>(all[static_cast<size_t>(i)]);
        if (std::isnan(code))
          EXPECT_TRUE(std::isnan(found[static_cast<size_t>(i)])) << i;
        else
          EXPECT_EQ(found[static_cast<size_t>(i)], 0.25 * code) << i;
      }
    }
}

// The gradient of some rows is added to that of all, whose other rows have none of it.
TEST(Quantized, SomeRowsOfAMatrixHaveTheirPartOfItsGradient) {
  Parameter parameter{Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}).reshape({3, 2}),
                      std::make_shared<GradSlot>()};
  parameter.grad->keep_in(DType::kF32);
  const auto backward = [&](int64_t first, int64_t count, float slope) {
    Tape tape;
    const Matrix rows = rows_of(tape, tape.leaf(parameter), first, count);
    EXPECT_EQ(rows.value.value.raw(), parameter.value.narrow(0, first, count).raw());  // a view
    EXPECT_EQ(rows.shape(), Shape({count, 2}));
    tape.backward(
        rows.value,
        Tensor::from(std::vector<float>(static_cast<size_t>(2 * count), slope)).reshape({count, 2}));
  };
  backward(1, 1, 3);
  EXPECT_EQ(values_of(parameter.grad->grad()), (Doubles{0, 0, 3, 3, 0, 0}));
  backward(1, 2, 1);
  EXPECT_EQ(values_of(parameter.grad->grad()), (Doubles{0, 0, 4, 4, 1, 1}));
}

// Also of values that come and go: nothing of the first one is kept.
TEST(Quantized, SomeRowsOfAMatrixAreMadeAgainWithIt) {
  Parameter parameter{Tensor::from(std::vector<float>{1, 2, 3, 4}).reshape({2, 2}), nullptr};
  parameter.gathered_on_use = true;
  Tape tape;
  const Saved saved = rows_of(tape, tape.leaf(parameter), 1, 1).value.saved();
  parameter.value = Tensor::from(std::vector<float>{5, 6, 7, 8}).reshape({2, 2});
  EXPECT_EQ(values_of(saved.get()), (Doubles{7, 8}));
}

TEST(Quantized, SomeRowsInEightBitsHaveTheirScales) {
  const Tensor values = tensor_of(normal(3, {4, 8}, 1), {4, 8}, DType::kF32);
  const auto [codes, scales] = quantize(values);
  const Parameter parameter{codes, nullptr, scales};
  Tape tape;
  const Matrix whole = in_8_bits(parameter, DType::kF32), rows = rows_of(tape, whole, 2, 2);
  ASSERT_TRUE(rows.in_8_bits());
  EXPECT_EQ(values_of(rows.scales), values_of(scales.narrow(0, 2, 2)));
  EXPECT_EQ(values_of(rows.widened().value), values_of(whole.widened().value.narrow(0, 2, 2)));
}

}  // namespace
}  // namespace temper::primitives
