#pragma once
#include "base/random.h"
#include "ops/selection.h"
#include "tensor/host_inputs.h"

namespace temper::ops {

// AdamW (Loshchilov and Hutter, 2019) over all parameters at once, in place. With g = clip · grad:
//   m ← β1 m + (1 - β1) g;   v ← β2 v + (1 - β2) g²
//   w ← w - lr · weight_decay · w - lr · (m / (1 - β1^step)) / (sqrt(v / (1 - β2^step)) + eps)
//   clip = min(1, max_grad_norm / (grad_norm + 1e-6))
// Arithmetic is float32; the bias corrections are formed in double. When grad_norm is not finite nothing
// changes.
//
// What is kept in bfloat16 is rounded stochastically: up with the probability of the part cut off, so that
// small updates are not lost. Random bits are Philox's, keyed by (seed, step, slot, tensor, element), where
// slots are counted from first_slot.
struct AdamW {
  static constexpr std::string_view kName = "adamw", kField = "adamw";
  struct Signature {
    DType dtype = DType::kF32;    // of the parameters
    bool master = true;           // float32 weights are kept in addition to parameters of lower precision
    DType grads = DType::kF32;    // float32 or bfloat16
    DType moments = DType::kF32;  // float32 or bfloat16
  };
  struct Slot {
    Tensor value;   // the parameter, of any shape and float dtype; rewritten from master when there is one
    Tensor master;  // float32 master weights of its shape, or undefined: `value` itself, float32 or bfloat16,
                    // is updated
    Tensor grad;    // float32 or bfloat16, of its shape
    Tensor exp_avg;     // float32 or bfloat16, of its shape, m
    Tensor exp_avg_sq;  // of exp_avg's shape and dtype, v
    float weight_decay = 0;
    // The tensors are elements [first, …) of a parameter that several ranks update together: random bits are
    // those of its elements. A multiple of 8.
    int64_t first = 0;
  };

  std::vector<Slot> slots;
  int64_t first_slot =
      0;  // of an update in parts: how many slots came before these; random bits depend on it
  HostValue<float> lr = 0.f;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  Tensor grad_norm;             // [1] float32, on the parameters' device; undefined: no clipping
  float max_grad_norm = 0;      // 0: no clipping
  HostValue<int64_t> step = 1;  // counts from 1
  uint64_t seed = 0;            // of the rounding

  // What gradients are multiplied with; NaN when nothing may change. Waits for the device's work.
  float clip() const;

  using Forward = void(const AdamW&);
  using Backward = void();  // not differentiable
  using Compose = void(const AdamW&);
};

// Which of a slot's tensors random bits are for.
enum class RoundedTensor : uint32_t { kValue, kExpAvg, kExpAvgSq };

// What rounds the elements of one tensor: element i takes half word i % 8, the lower half of a word first, of
// random.words(first + i / 8).
struct RoundingBits {
  Random random;
  uint64_t first;

  uint32_t operator[](int64_t element) const;
};
RoundingBits rounding_bits(const AdamW& op, size_t slot, RoundedTensor tensor);

void adamw(Bound<AdamW> bound, const AdamW& op);

}  // namespace temper::ops
