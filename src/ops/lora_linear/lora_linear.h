#pragma once
#include "ops/low_rank.h"
#include "ops/selection.h"
#include "ops/weights.h"

namespace temper::ops {

// One adapter's rows of a pass, and its updates. Modules that are fused in memory (q|k|v) share what they
// read and have a slice each; the rows of `a` belong to the slices in their order.
template <class T>
struct LoraGroup {
  using Slice = LowRankSlice<T>;
  int64_t row = 0, rows = 0;  // of x and y
  T input;                    // [rows, in], what the adapter reads, after dropout; undefined: these rows of x
  T a;                        // [Σ ranks, in]
  std::vector<Slice> slices;  // by ascending columns, none of which belongs to two
};

// y = x weightᵀ + bias, and in the rows of each group and the columns of each of its slices
//   y += scale · (input aᵀ) bᵀ
// (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021). Rows without a group are the plain
// linear's; groups do not overlap. The weight is frozen: it has no gradient, so that backward keeps x and the
// narrow products alone. Gradients of a, b and bias are float32.
struct LoraLinear {
  static constexpr std::string_view kName = "lora_linear", kField = "lora_linear";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t in = 0, out = 0;
    bool bias = false;
  };
  using Group = LoraGroup<Tensor>;

  Tensor x;       // [rows, in]; backward: undefined unless the gradient of an `a` that reads it is wanted
  Tensor weight;  // [out, in], or codes of 8 bits in forward of kernels that read them
  Tensor bias;    // [out], or undefined
  std::vector<Group> groups;
  Tensor scales = {};  // [out], float32, of codes

  // Of kernels with Traits::swiglu: swiglu's passes with this one's, with the bits of swiglu's kernel.
  bool swiglu = false;  // forward: y is gate|up, and Output::swiglu is wanted
  // Backward, where defined [rows, 2 in]: x is swiglu(gate_up), and Gradients::x is that of gate_up and
  // wanted. Then x may be undefined even where it is read: it is made again along with that.
  Tensor gate_up = {};

  struct Output {
    Tensor y;                 // [rows, out], x's dtype
    std::vector<Tensor> low;  // of each group: input aᵀ, scaled and laid out as the kernel likes
    Tensor swiglu = {};       // [rows, out / 2], or undefined
  };
  // What is wanted of a group. With an `input` of its own its gradient is apart from x's.
  struct GroupTargets {
    bool input = false;
    GradTarget a;
    std::vector<GradTarget> b;  // of each slice
  };
  struct Targets {
    bool x = false;
    GradTarget bias;
    std::vector<GroupTargets> groups;
  };
  struct Gradients {
    Tensor x;                    // [rows, in] or [rows, 2 in], or undefined
    std::vector<Tensor> inputs;  // of each group: [rows, in], or undefined
  };
  using Forward = Output(const LoraLinear&);
  using Backward = Gradients(const LoraLinear&, const std::vector<Tensor>& low, const Tensor& dy,
                             const Targets& targets);
  using Compose = Var(Tape&, const Var& x, const Var& weight, const Var& bias,
                      const std::vector<LoraGroup<Var>>& groups);

  struct Traits {
    ReadsCodes* reads_codes = nullptr;
    bool swiglu = false;  // the products take swiglu with them
    bool operator==(const Traits&) const = default;
  };
};

// swiglu before and behind the products, which kernels with Traits::swiglu take with them; others leave both
// alone.
struct SwigluInProducts {
  const Var* gate_up = nullptr;  // [rows, 2 in]: x is swiglu of it
  Tensor* made = nullptr;        // [rows, out / 2]: becomes swiglu of y
};

// bias may be Var{} (none), and so may a group's input; the weight may be in 8 bits. A weight that can be
// made again is not kept for backward. With `swiglu.gate_up` x's gradient goes straight to what swiglu read,
// unless a group has an input of its own.
Var lora_linear(Tape& tape, Bound<LoraLinear> bound, const Var& x, const primitives::Matrix& weight,
                const Var& bias, const std::vector<LoraGroup<Var>>& groups,
                const SwigluInProducts& swiglu = {});

}  // namespace temper::ops
