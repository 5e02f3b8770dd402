#pragma once
#include <string_view>

#include "base/error.h"
#include "tensor/dtype.h"

// Where the mixer's values become the model's dtype, in training, prefill and decoding alike: at the points
// that are not float32, each once and nowhere else. docs/hybrids.md has the same table for readers.
namespace temper::mixers {

enum class DeltaPoint : uint8_t {
  kProjections,
  kGateProjections,
  kConvolution,
  kGates,
  kNormedKeys,
  kState,
  kDeltaRule,
  kGatedNorm,
  kOutput,
};

struct DeltaRounding {
  std::string_view point;
  bool float32 = false;  // otherwise the model's dtype
};

inline constexpr DeltaRounding kDeltaRoundings[] = {
    {"projections of q, k, v and z", false},  // which the window of the convolution keeps
    {"projections of b and a", false},
    {"convolution with SiLU", false},
    {"g and beta", true},
    {"normed q and k",
     true},  // inside the delta rule, whose kernels on matrix units round what they multiply
    {"state of the delta rule", true},
    {"output of the delta rule", false},
    {"gated norm", false},
    {"output projection", false},
};

inline DType dtype_at(DeltaPoint point, DType model) {
  return kDeltaRoundings[static_cast<size_t>(point)].float32 ? DType::kF32 : model;
}

// What the mixer hands on there; another dtype is a defect.
template <class Value>
const Value& rounded_at(DeltaPoint point, DType model, const Value& value) {
  invariant(
      value.dtype() == dtype_at(point, model),
      fmt::format("gated delta: {} in {}, expected {}", kDeltaRoundings[static_cast<size_t>(point)].point,
                  to_string(value.dtype()), to_string(dtype_at(point, model))));
  return value;
}

}  // namespace temper::mixers
