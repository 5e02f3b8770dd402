#pragma once
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "base/registry.h"
#include "device/facts.h"

namespace temper::ops {

using Refusal = std::optional<std::string>;  // empty: accepted; otherwise a sentence that says why not

// One provider's implementation of one op. `Op` declares:
//   kName, kField (its key in ops_implementation), Signature (what a choice may depend on),
//   Compose (a function on Vars, for `eager`), Forward and Backward (functions on Tensors).
// A kernel has either `compose`, whose gradient comes from the primitives, or `forward` and `backward`.
template <class Op>
struct Kernel {
  HardwareClass hardware = HardwareClass::kCpu;  // ignored for eager, which runs everywhere
  Refusal (*accepts)(const typename Op::Signature&, const HardwareFacts&) = nullptr;
  typename Op::Compose* compose = nullptr;
  typename Op::Forward* forward = nullptr;
  typename Op::Backward* backward = nullptr;
};

inline constexpr std::string_view kEager = "eager";

// Kernels of an op by provider, in order of preference: the first that accepts is the default.
template <class Op>
Registry<Kernel<Op>>& kernels() {
  return registry<Kernel<Op>>();
}

template <class Signature>
Refusal accept_all(const Signature&, const HardwareFacts&) {
  return std::nullopt;
}

}  // namespace temper::ops
