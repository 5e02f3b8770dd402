#pragma once
#include "ops/kernel.h"

namespace temper::backends {

// Loads and stores exist for float32 and bfloat16.
template <class Signature>
ops::Refusal refuse_float16(const Signature& signature, const HardwareFacts&) {
  if (signature.dtype == DType::kF32 || signature.dtype == DType::kBF16) return std::nullopt;
  return "dtype must be float32 or bfloat16";
}

template <class Signature>
ops::Refusal refuse_but_float32(const Signature& signature, const HardwareFacts&) {
  if (signature.dtype == DType::kF32) return std::nullopt;
  return "dtype must be float32";
}

// Calls f.template operator()<T>() for the dtypes that refuse_float16 lets through.
template <class F>
void visit_wide(DType dtype, F&& f) {
  if (dtype == DType::kF32)
    f.template operator()<float>();
  else
    f.template operator()<BFloat16>();
}

}  // namespace temper::backends
