#pragma once
#include "ops/selection.h"

namespace temper::ops {

// y[r] = weight_e x[r]  with e = ids[r]: each row is multiplied by the matrix of its expert. Sums are
// float32, rounded once. The gradient of a matrix is a sum over its expert's rows, zero where it has none.
struct ExpertLinear {
  static constexpr std::string_view kName = "expert_linear", kField = "expert_linear";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t in = 0, out = 0;  // 0: of any size, as low-rank updates by adapters are
    int64_t experts = 0;
  };

  Tensor x;       // [rows, in], compact; backward: undefined unless the gradient of weight is wanted
  Tensor ids;     // [rows, 1] int32 in [0, experts), on x's device
  Tensor weight;  // [experts · out, in], those of an expert together, of x's dtype
  int64_t experts = 0;

  int64_t rows() const { return ids.dim(0); }
  int64_t in() const { return weight.dim(1); }
  int64_t out() const { return weight.dim(0) / experts; }

  using Forward = Tensor(const ExpertLinear&);  // y [rows, out]
  // dy [rows, out], compact. dx [rows, in], undefined unless it is wanted.
  using Backward = Tensor(const ExpertLinear&, const Tensor& dy, bool want_dx, const GradTarget& weight);
  using Compose = Var(Tape&, const Var& x, const Tensor& ids, const Var& weight, int64_t experts);
};

Var expert_linear(Tape& tape, Bound<ExpertLinear> bound, const Var& x, const Tensor& ids, const Var& weight,
                  int64_t experts);

}  // namespace temper::ops
