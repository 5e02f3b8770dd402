#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "base/random.h"
#include "base/threads/threads.h"
#include "primitives/quantized.h"
#include "tests/support/gpu.h"
#include "tests/support/op_testing.h"

namespace temper::op_testing {

Doubles normal(uint64_t seed, const Shape& shape, double scale, double mean) {
  const Random random(seed, RandomPurpose::kData);
  Doubles values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = mean + scale * random.normal(i);
  return values;
}

Tensor tensor_of(const Doubles& values, const Shape& shape, DType dtype) {
  invariant(static_cast<int64_t>(values.size()) == shape.numel(), "one value per element");
  const Tensor tensor = Tensor::empty(shape, dtype);
  visit_float(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) tensor.data<T>()[i] = T(static_cast<float>(values[i]));
  });
  return tensor;
}

Tensor ints(const std::vector<int32_t>& values) { return Tensor::from(values); }

std::vector<uint32_t> bits_of(const Tensor& tensor) {
  const Tensor wide = tensor.on({}).to(DType::kF32).contiguous();
  std::vector<uint32_t> bits;
  for (const float value : wide.values<float>())
    bits.push_back(std::isnan(value) ? 0x7FC00000 : std::bit_cast<uint32_t>(value));
  return bits;
}

Doubles values_of(const Tensor& tensor) {
  const Tensor here = tensor.on({});
  if (here.dtype() == DType::kI32) {
    const Tensor compact = here.contiguous();
    return Doubles(compact.values<int32_t>().begin(), compact.values<int32_t>().end());
  }
  const Tensor wide = here.to(DType::kF32).contiguous();
  const auto values = wide.values<float>();
  return Doubles(values.begin(), values.end());
}

namespace {

Parameter quantized(const Doubles& values, const Shape& shape) {
  const Tensor codes = Tensor::empty(shape, DType::kF8E4M3), scales = Tensor::empty({shape[0]}, DType::kF32);
  primitives::quantize_rows(tensor_of(values, shape, DType::kF32), codes, scales);
  return {codes, nullptr, scales};
}

}  // namespace

primitives::Matrix in_8_bits(const Var& input, const Doubles& values, const Shape& shape) {
  const Parameter made = quantized(values, shape);
  return primitives::in_8_bits({on_device_of(input, made.value), nullptr, on_device_of(input, made.scales)},
                               input.dtype());
}

Doubles meaning_in_8_bits(const Doubles& values, const Shape& shape) {
  const Parameter made = quantized(values, shape);
  return values_of(primitives::dequantized(made.value, made.scales, DType::kF32));
}

Tensor padded_tensor_of(const Doubles& values, const Shape& shape, DType dtype, const Padding& padding,
                        Device device) {
  Shape wide = shape;
  wide[padding.dim] += padding.before + padding.after;
  const Doubles nan(static_cast<size_t>(wide.numel()), std::numeric_limits<double>::quiet_NaN());
  const Tensor all = tensor_of(nan, wide, dtype);
  all.narrow(padding.dim, padding.before, shape[padding.dim]).copy_from(tensor_of(values, shape, dtype));
  return all.on(device).narrow(padding.dim, padding.before, shape[padding.dim]);
}

void expect_error(const std::function<void()>& call, std::string_view message) {
  try {
    call();
    ADD_FAILURE() << "no error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), message);
  }
}

testing::AssertionResult close(const Doubles& found, const Doubles& expected, double tolerance,
                               double floor) {
  if (found.size() != expected.size())
    return testing::AssertionFailure() << found.size() << " values, expected " << expected.size();
  double scale = floor;
  for (const double value : expected) scale = std::max(scale, std::fabs(value));
  if (!std::isfinite(scale)) return testing::AssertionFailure() << "an infinite value is expected";
  size_t worst = 0, wrong = 0;
  double worst_error = -1;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(found[i] - expected[i]);
    if (error <= tolerance * scale) continue;
    ++wrong;  // NaN comes here too
    if (std::isnan(worst_error) || error <= worst_error) continue;
    worst = i;
    worst_error = error;
  }
  if (wrong == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << fmt::format(
             "{} of {} values are off, the worst at {}: found {:.9g}, expected {:.9g}; error {:.3g} of the "
             "largest "
             "value {:.3g}, allowed {:.3g}",
             wrong, found.size(), worst, found[worst], expected[worst], worst_error / scale, scale,
             tolerance);
}

Threads::Threads(int count) : before_(num_threads()) { set_num_threads(count); }
Threads::~Threads() { set_num_threads(before_); }

const HardwareFacts& facts() {
  static const HardwareFacts found = detect_cpu();
  return found;
}

const std::vector<HardwareFacts>& machines() {
  static const std::vector<HardwareFacts> found = [] {
    std::vector<HardwareFacts> all{facts()};
    const std::string why = why_no_gpu();
    if (why.empty())
      all.push_back(detect_hardware("cuda"));
    else
      fmt::print("[ CPU only ] {}\n", why);
    return all;
  }();
  return found;
}

bool is_left_out(std::string_view provider, const HardwareFacts& machine) {
  const char* named = std::getenv("TEMPER_TEST_LEAVE_OUT");
  if (named == nullptr || machine.device.type != DeviceType::kCuda) return false;
  const std::string all = fmt::format(",{},", named);
  return all.find(fmt::format(",{},", provider)) != std::string::npos;
}

void report_refusal(std::string_view op, std::string_view provider, std::string_view sentence) {
  EXPECT_NE(provider, ops::kEager) << op << ": eager must accept everything: " << sentence;
  static std::set<std::string> printed;  // once is enough
  if (printed.emplace(fmt::format("{} {} {}", op, provider, sentence)).second)
    fmt::print("[ refusal  ] {}\n", sentence);
}

}  // namespace temper::op_testing
