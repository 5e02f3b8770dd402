#pragma once
#include "ops/selection.h"

namespace temper::ops {

// y = silu(gate) * up, with silu(z) = z / (1 + exp(-z)) (Shazeer, 2020). Computed in float32, rounded once.
struct Swiglu {
  static constexpr std::string_view kName = "swiglu", kField = "swiglu_mlp";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t intermediate = 0;
  };

  Tensor gate_up;  // [rows, 2 * intermediate]: gate, then up

  using Forward = Tensor(const Swiglu&);  // y [rows, intermediate]
  // Returns dgate_up. Where y is defined [rows, intermediate], it becomes forward's result again, with the
  // same bits: its factors are at hand here. It may lie in dy's memory.
  using Backward = Tensor(const Swiglu&, const Tensor& dy, const Tensor& y);
  using Compose = Var(Tape&, const Var& gate_up);

  struct Traits {
    bool in_products = false;  // products may take it with them (ops/lora_linear), as its bits are theirs
    bool operator==(const Traits&) const = default;
  };
};

// `made`: forward's result, where the product that made gate_up made it, too (LoraLinear::Output::swiglu).
Var swiglu(Tape& tape, Bound<Swiglu> bound, const Var& gate_up, const Tensor& made = {});

}  // namespace temper::ops
