// Numbers next to those where a kernel that computes faster than the formula may give another bit.
#include <algorithm>
#include <cmath>

#include "ops/fake_quantize/fake_quantize.h"
#include "quant/number_format.h"
#include "tests/support/decoded.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;
using quant::Format;

std::vector<uint32_t> exact_bits(const Tensor& tensor) {
  const Tensor wide = tensor.to(DType::kF32);
  std::vector<uint32_t> bits;
  for (const float value : wide.values<float>()) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

void compare_with_codes(const std::string& name, const Format& format, const Tensor& x, const Tensor& amax) {
  const auto wanted = exact_bits(quant::decode(format, quant::encode(name, format, x, amax), x.dtype()));
  for (const BoundKernel& kernel : bind_everywhere<FakeQuantize>({x.dtype(), format})) {
    Tape tape(false);
    const Tensor of = amax.defined() ? amax.on(kernel.device) : amax;
    const Var y = fake_quantize(tape, kernel.ops, tape.constant(x.on(kernel.device)), of, format);
    EXPECT_EQ(exact_bits(y.value.on({})), wanted) << kernel.provider << " " << name;
  }
}

// A kernel that multiplies by reciprocals must correct the product: these quotients are next to the middle of
// two numbers of E2M1, where the product, or that of the divisor with the middle, is on another side, and
// those of many amax by all integers.
TEST(FakeQuantizeExactly, QuotientsAreThoseOfDivision) {
  const std::pair<uint32_t, float> next_to_middles[] = {
      {0x18CCCC, 191}, {0x0EDB6E, 250}, {0x02AAAB, 196}, {0x419999, 242}};
  const Format nvfp4 = quant::format_named("nvfp4");
  for (const auto& [mantissa, number] : next_to_middles) {
    const float global = std::bit_cast<float>(0x3F800000 | mantissa);
    float amax = global * (6 * 448);
    while (quant::global_scale(amax) < global) amax = std::nextafter(amax, HUGE_VALF);
    while (quant::global_scale(amax) > global) amax = std::nextafter(amax, 0.f);
    ASSERT_EQ(quant::global_scale(amax), global);
    Doubles values;
    for (int i = 0; i < 64; ++i) values.push_back(std::ldexp(i % 2 ? number : -number, i % 8 - 12));
    for (int i = 0; i < 64; i += 16) values[static_cast<size_t>(i)] = 6 * global;
    compare_with_codes("nvfp4", nvfp4, tensor_of(values, {2, 32}, DType::kBF16),
                       tensor_of({amax}, {1, 1}, DType::kF32));
  }
  const Shape shape{4096, 256};
  const Tensor amax = tensor_of(normal(6, {shape[0], 1}), {shape[0], 1}, DType::kF32);
  Doubles values;
  for (int64_t row = 0; row < shape[0]; ++row) {
    float& own = amax.data<float>()[row];
    own = 1 + std::fabs(own);
    for (int i = -128; i < 128; ++i) values.push_back(static_cast<double>(i) * own / 127);
  }
  compare_with_codes("int8", quant::format_named("int8"), tensor_of(values, shape, DType::kBF16), amax);
}

// A kernel that compares elements with limits, or moves the steps of a block, must have each limit exactly:
// blocks with all numbers of bfloat16 between a small one, which becomes 0, and the largest element times
// their scale. Scales of NVFP4 have each mantissa of E4M3, times many of the matrix; others are powers of
// two.
TEST(FakeQuantizeExactly, EveryNumberOfBFloat16HasTheBitsOfDecodedCodes) {
  std::vector<float> amaxes{1, 0.7109375f, 1.9921875f, 448 * 6, 1e-6f, 1e4f, 448 * 6 * 1.00390625f};
  for (const double value : normal(13, {40})) amaxes.push_back(static_cast<float>(std::fabs(value)));
  const auto nearest_bits = [](float value) { return (std::bit_cast<uint32_t>(value) + 0x8000) >> 16; };
  const auto compare = [&](const char* name, float amax, float least, const std::vector<float>& scales) {
    const Format format = quant::format_named(name);
    std::vector<uint32_t> bits;
    for (const float scale : scales) {
      const uint32_t largest = nearest_bits(format.element.largest * scale);
      for (uint32_t next = nearest_bits(least * scale); next < largest;) {
        bits.push_back(largest);
        for (int i = 1; i < format.block; ++i) bits.push_back(std::min(next++, largest) | (i % 2 << 15));
      }
    }
    bits.resize((bits.size() + 1023) / 1024 * 1024);
    const Shape shape{static_cast<int64_t>(bits.size() / 1024), 1024};
    const Tensor x = Tensor::empty(shape, DType::kF32);
    for (size_t i = 0; i < bits.size(); ++i) x.data<float>()[i] = std::bit_cast<float>(bits[i] << 16);
    compare_with_codes(name, format, x.to(DType::kBF16),
                       format.needs_amax() ? tensor_of({amax}, {1, 1}, DType::kF32) : Tensor());
  };
  for (const float amax : amaxes) {
    std::vector<float> scales;
    for (int i = 8; i < 16; ++i)
      scales.push_back(std::ldexp(static_cast<float>(i), i * 7 % 13 - 11) * quant::global_scale(amax));
    compare("nvfp4", amax, 0.2f, scales);
  }
  const std::vector<float> powers{0x1p-90f, 0x1p-80f, 0x1p-3f, 1, 0x1p70f, 0x1p90f};
  compare("mxfp4", 1, 0.2f, powers);
  compare("mxfp6", 1, 0x1p-6f, powers);
  compare("mxfp8", 1, 0x1p-11f, powers);
  compare("mxint8", 1, 0x1p-8f, powers);
}

}  // namespace
}  // namespace temper::ops
