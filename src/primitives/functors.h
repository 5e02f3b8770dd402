#pragma once
#include <cmath>
#include <variant>

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
using Unary = std::variant<Scale, AddScalar, Exp, Log, Rsqrt, Sigmoid, Softplus>;

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
using Binary = std::variant<Add, Sub, Mul, Div>;

}  // namespace temper::primitives
