#pragma once
#include "ops/selection.h"
#include "ops/weights.h"

namespace temper::ops {

// y = x weightᵀ + bias. Products accumulate in float32; gradients of weight and bias are float32.
struct Linear {
  static constexpr std::string_view kName = "linear", kField = "linear";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t in = 0, out = 0;
    bool bias = false;
  };

  Tensor x;            // [rows, in]; backward: undefined unless the weight's gradient is wanted
  Tensor weight;       // [out, in], or codes of 8 bits in forward of kernels that read them
  Tensor bias;         // [out], or undefined
  Tensor scales = {};  // [out], float32, of codes

  using Forward = Tensor(const Linear&);  // y [rows, out], x's dtype
  // Returns dx [rows, in] when want_dx, otherwise an undefined tensor.
  using Backward = Tensor(const Linear&, const Tensor& dy, bool want_dx, const GradTarget& weight,
                          const GradTarget& bias);
  using Compose = Var(Tape&, const Var& x, const Var& weight, const Var& bias);

  struct Traits {
    ReadsCodes* reads_codes = nullptr;
    bool operator==(const Traits&) const = default;
  };
};

// bias may be Var{} (none), the weight frozen and in 8 bits. A weight that can be made again is not kept for
// backward.
Var linear(Tape& tape, Bound<Linear> bound, const Var& x, const primitives::Matrix& weight,
           const Var& bias = {});

}  // namespace temper::ops
