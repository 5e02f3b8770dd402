#pragma once
#include "ops/selection.h"

namespace temper::ops {

// Of the gate. silu(z) = z s(z) with s(z) = 1 / (1 + exp(-z)); gelu in its tanh form, which is
// 0.5 z (1 + tanh(√(2/π) (z + 0.044715 z³))) = z s(2 √(2/π) (z + 0.044715 z³)).
enum class Activation : uint8_t { kSilu, kGeluTanh };
inline constexpr float kGeluScale = 1.5957691216057308f, kGeluCubic = 0.044715f;  // 2 √(2/π); of z³

// y = activation(gate) * up (Shazeer, 2020). Computed in float32, rounded once.
struct Swiglu {
  static constexpr std::string_view kName = "swiglu", kField = "swiglu_mlp";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t intermediate = 0;
    Activation activation = Activation::kSilu;
  };

  Tensor gate_up;  // [rows, 2 * intermediate]: gate, then up
  Activation activation = Activation::kSilu;

  using Forward = Tensor(const Swiglu&);  // y [rows, intermediate]
  // Returns dgate_up. Where y is defined [rows, intermediate], it becomes forward's result again, with the
  // same bits: its factors are at hand here. It may lie in dy's memory.
  using Backward = Tensor(const Swiglu&, const Tensor& dy, const Tensor& y);
  using Compose = Var(Tape&, const Var& gate_up, Activation activation);

  struct Traits {
    // Products may take it with them (ops/lora_linear), as its bits are theirs: with silu.
    bool in_products = false;
    bool operator==(const Traits&) const = default;
  };
};

// `made`: forward's result, where the product that made gate_up made it, too (LoraLinear::Output::swiglu).
Var swiglu(Tape& tape, Bound<Swiglu> bound, const Var& gate_up, const Tensor& made = {},
           Activation activation = Activation::kSilu);

}  // namespace temper::ops
