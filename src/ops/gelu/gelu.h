#pragma once
#include "ops/selection.h"

namespace temper::ops {

// x times what a normal distribution has below x (Hendrycks and Gimpel, 2016), exactly and in two
// approximations; with s(z) = 1 / (1 + exp(-z)):
//   kErf    0.5 x (1 + erf(x / √2))
//   kTanh   0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))) = x s(2 √(2/π) (x + 0.044715 x³))
//   kQuick  x s(1.702 x)
enum class GeluForm : uint8_t { kErf, kTanh, kQuick };
inline constexpr float kQuickGeluScale = 1.702f;
inline constexpr float kTanhGeluScale = 1.5957691216057308f, kTanhGeluCubic = 0.044715f;  // 2 √(2/π); of x³

// y = gelu(x), in float32, rounded once.
struct Gelu {
  static constexpr std::string_view kName = "gelu", kField = "gelu";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t width = 0;
    GeluForm form = GeluForm::kErf;
  };

  Tensor x;  // [rows, width], compact
  GeluForm form = GeluForm::kErf;

  using Forward = Tensor(const Gelu&);                     // y [rows, width], compact
  using Backward = Tensor(const Gelu&, const Tensor& dy);  // dy compact; returns dx, x's shape, compact
  using Compose = Var(Tape&, const Var& x, GeluForm form);
};

Var gelu(Tape& tape, Bound<Gelu> bound, const Var& x, GeluForm form);

}  // namespace temper::ops
