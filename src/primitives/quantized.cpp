#include "primitives/quantized.h"

#include <cmath>

#include "base/error.h"
#include "base/threads/threads.h"
#include "base/tracing/trace.h"
#include "primitives/device_functions.h"

namespace temper::primitives {
namespace {

constexpr float kTooLarge = 0x1p120f;
constexpr int kLeastExponent = -117;  // the smallest code times it is still a normal float32

// NaN where a value cannot be kept.
template <class T>
float scale_of(const T* values, int64_t count) {
  uint32_t largest = 0;  // as bits, in whose order NaN and infinity come last
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(static_cast<float>(values[i])) & 0x7FFFFFFF);
  const auto amax = std::bit_cast<float>(largest);
  if (!(amax < kTooLarge)) return std::nanf("");
  if (amax == 0) return 1;
  int exponent = 0;
  const float fraction = std::frexp(amax, &exponent);  // in [0.5, 1)
  exponent -= fraction <= Float8E4M3::kLargest / 512 ? 9 : 8;
  return std::ldexp(1.0f, std::max(exponent, kLeastExponent));
}

template <class T>
float quantize_row(const T* values, Float8E4M3* codes, int64_t count) {
  const float scale = scale_of(values, count), inverse = 1 / scale;
  for (int64_t i = 0; i < count; ++i) codes[i] = Float8E4M3(static_cast<float>(values[i]) * inverse);
  return scale;
}

}  // namespace

void quantize_rows(const Tensor& values, const Tensor& codes, const Tensor& scales) {
  const int64_t rows = values.dim(0), columns = values.dim(1);
  invariant(codes.shape() == values.shape() && scales.shape() == Shape{rows}, "codes and scales fit values");
  float* const scale = scales.data<float>();
  visit_float(values.dtype(), [&]<class T>() {
    const T* const from = values.values<T>().data();
    Float8E4M3* const to = codes.values<Float8E4M3>().data();
    const int64_t grain = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(columns, 1));
    parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        scale[row] = quantize_row(from + row * columns, to + row * columns, columns);
    });
  });
  for (int64_t row = 0; row < rows; ++row)
    if (std::isnan(scale[row]))
      fail("row {} holds a value that is not finite, or 2^120 and more: it cannot be kept in {}", row,
           to_string(DType::kF8E4M3));
}

Tensor dequantized(const Tensor& codes, const Tensor& scales, DType dtype) {
  const Tensor y = Tensor::empty(codes.shape(), dtype, MemoryTag::kWorkspace, codes.device());
  const trace::Span span("dequantize", [&] {
    return trace::OpWork{{0, static_cast<double>(codes.bytes() + scales.bytes() + y.bytes())}, {}};
  });
  primitive_functions(codes.device()).dequantize(codes, scales, y);
  return y;
}

Matrix in_8_bits(const Parameter& parameter, DType dtype) {
  invariant(parameter.scales.defined() && parameter.grad == nullptr,
            "a parameter in 8 bits has scales and is frozen");
  if (parameter.gathered_on_use)
    return {{parameter.value, nullptr, std::make_shared<Remake>([&parameter, dtype] {
               return dequantized(parameter.value, parameter.scales, dtype);
             })},
            parameter.scales};
  const auto make = [codes = parameter.value, scales = parameter.scales, dtype] {
    return dequantized(codes, scales, dtype);
  };
  return {{parameter.value, nullptr, std::make_shared<Remake>(make)}, parameter.scales};
}

Var Matrix::widened() const { return in_8_bits() ? Var{value.saved().get(), nullptr, value.remake} : value; }

Matrix rows_of(Tape& tape, const Matrix& whole, int64_t first, int64_t count) {
  const auto some = [first, count](const Tensor& all) { return all.narrow(0, first, count); };
  const Var& all = whole.value;
  Var rows =
      tape.record(some(all.value), {&all}, [slot = all.slot, saved = all.saved(), some](const Tensor& grad) {
        const GradTarget target = slot->target(saved.get());
        const Tensor own = some(target.buffer);
        if (target.accumulate) return add_in_place(own, grad);
        target.buffer.fill_zero();
        own.copy_from(grad);
      });
  // A value that is not kept is made again, so that the view keeps nothing of it, either.
  if (all.remake)
    rows.remake = std::make_shared<Remake>([remake = all.remake, some] { return some(remake->make()); });
  return whole.in_8_bits() ? Matrix(rows, some(whole.scales)) : Matrix(rows);
}

}  // namespace temper::primitives
