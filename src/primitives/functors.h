#pragma once
#include <cmath>
#include <variant>

#include "quant/zero_points.h"

// The mathematics of element-wise primitives, once for CPUs and devices: constexpr functions run on both.
namespace temper::primitives {

// f(x) and its derivative as a function of (x, f(x)).
struct Scale {
  float factor;
  constexpr float value(float x) const { return x * factor; }
  constexpr float slope(float, float) const { return factor; }
};
struct AddScalar {
  float term;
  constexpr float value(float x) const { return x + term; }
  constexpr float slope(float, float) const { return 1; }
};
struct Exp {
  constexpr float value(float x) const { return std::exp(x); }
  constexpr float slope(float, float y) const { return y; }
};
struct Log {
  constexpr float value(float x) const { return std::log(x); }
  constexpr float slope(float x, float) const { return 1 / x; }
};
struct Rsqrt {
  constexpr float value(float x) const { return 1 / std::sqrt(x); }
  constexpr float slope(float x, float y) const { return -0.5f * y / x; }
};
struct Sigmoid {
  constexpr float value(float x) const { return 1 / (1 + std::exp(-x)); }
  constexpr float slope(float, float y) const { return y * (1 - y); }
};
struct Softplus {
  constexpr float value(float x) const { return (x > 0 ? x : 0) + std::log1p(std::exp(x > 0 ? -x : x)); }
  constexpr float slope(float x, float) const { return 1 / (1 + std::exp(-x)); }
};
struct Erf {
  constexpr float value(float x) const { return std::erf(x); }
  constexpr float slope(float x, float) const { return 1.1283791671f * std::exp(-x * x); }  // 2 / √π
};
// Slope one at the limits themselves, as in PyTorch.
struct Clamp {
  float least, most;
  constexpr float value(float x) const { return x < least ? least : x > most ? most : x; }
  constexpr float slope(float x, float) const { return x < least || x > most ? 0 : 1; }
};
// |x|; infinity for NaN. For maxima, without a gradient.
struct Magnitude {
  constexpr float value(float x) const {
    const auto infinity = std::bit_cast<float>(0x7F800000u);
    return x != x ? infinity : x < 0 ? -x : x;
  }
  constexpr float slope(float, float) const { return 0; }
};
using Unary = std::variant<Scale, AddScalar, Exp, Log, Rsqrt, Sigmoid, Softplus, Erf, Clamp, Magnitude>;

// f(a, b) and its derivatives with respect to a and b.
struct Add {
  constexpr float value(float a, float b) const { return a + b; }
  constexpr float slope_a(float, float) const { return 1; }
  constexpr float slope_b(float, float) const { return 1; }
};
struct Sub {
  constexpr float value(float a, float b) const { return a - b; }
  constexpr float slope_a(float, float) const { return 1; }
  constexpr float slope_b(float, float) const { return -1; }
};
struct Mul {
  constexpr float value(float a, float b) const { return a * b; }
  constexpr float slope_a(float, float b) const { return b; }
  constexpr float slope_b(float a, float) const { return a; }
};
struct Div {
  constexpr float value(float a, float b) const { return a / b; }
  constexpr float slope_a(float, float b) const { return 1 / b; }
  constexpr float slope_b(float a, float b) const { return -a / (b * b); }
};

// Steps of fake quantization (quant/format.h), without gradients.
struct NoSlopes {
  constexpr float slope_a(float, float) const { return 0; }
  constexpr float slope_b(float, float) const { return 0; }
};
struct EncodingFactor : NoSlopes {
  quant::Format format;
  explicit EncodingFactor(const quant::Format& of) : format(of) {}
  constexpr float value(float amax, float whole) const {
    return format.has_blocks() ? factors_of_block(format, amax, whole).by : factors_of(format, amax).by;
  }
};
struct DecodingFactor : NoSlopes {
  quant::Format format;
  explicit DecodingFactor(const quant::Format& of) : format(of) {}
  constexpr float value(float amax, float whole) const {
    return format.has_blocks() ? factors_of_block(format, amax, whole).back : factors_of(format, amax).back;
  }
};
struct Quantized : NoSlopes {
  quant::Format format;
  explicit Quantized(const quant::Format& of) : format(of) {}
  constexpr float value(float x, float by) const { return quantized(format, x, by); }
};
struct Dequantized : NoSlopes {
  quant::Format format;
  explicit Dequantized(const quant::Format& of) : format(of) {}
  constexpr float value(float element, float back) const { return dequantized(format, element, back); }
};
// Of integers with zero points (quant/zero_points.h), by the ends of a range.
struct RangeStep : NoSlopes {
  quant::Element element;
  explicit RangeStep(const quant::Element& of) : element(of) {}
  constexpr float value(float low, float high) const { return zero_point_of(element, low, high).step; }
};
struct RangeZero : NoSlopes {
  quant::Element element;
  explicit RangeZero(const quant::Element& of) : element(of) {}
  constexpr float value(float low, float high) const { return zero_point_of(element, low, high).zero; }
};
struct WholeSteps : NoSlopes {
  constexpr float value(float x, float step) const { return round_to(quant::whole_numbers(), x / step); }
};
struct AtMost : NoSlopes {
  constexpr float value(float x, float limit) const { return x <= limit ? 1 : 0; }
};
struct Within : NoSlopes {
  constexpr float value(float x, float limit) const { return (x < 0 ? -x : x) <= limit ? 1 : 0; }
};
struct Where : NoSlopes {
  constexpr float value(float x, float flag) const { return flag != 0 ? x : 0; }
};
using Binary = std::variant<Add, Sub, Mul, Div, EncodingFactor, DecodingFactor, Quantized, Dequantized,
                            RangeStep, RangeZero, WholeSteps, Within, AtMost, Where>;

}  // namespace temper::primitives
