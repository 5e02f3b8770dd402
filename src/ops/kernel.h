#pragma once
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "base/parts/registry.h"
#include "device/facts.h"

namespace temper::ops {

using Refusal = std::optional<std::string>;  // empty: accepted; otherwise a sentence that says why not

// A way to cut a kernel's work, and the on-chip memory that it takes.
struct Tiling {
  std::string name;  // "128x64"
  int64_t scratch_bits = 0;
};

// Which tiling fits first; a sentence with the figures when none does, and nothing when there are none.
Refusal choose_tiling(const std::vector<Tiling>& tilings, const HardwareFacts& facts, int* chosen);

// What a kernel runs on a device that only counts (DeviceType::kCounted): functions that take the memory that
// its own take, results and workspace, with the same life, and compute nothing. So plans of memory ask the
// kernels. What is null is the op's own outline (register_op): results alone; a kernel that takes more has
// one of its own next to it, made of what it is itself cut by.
template <class Op>
struct Outline {
  typename Op::Forward* forward = nullptr;
  typename Op::Backward* backward = nullptr;
  typename Op::Compose* compose = nullptr;  // of compositions that are no work of primitives alone

  bool operator==(const Outline&) const = default;
};

// The op's own, of all kernels that have none.
template <class Op>
Outline<Op>& outline() {
  static Outline<Op> instance;
  return instance;
}

// A kernel that is better than another one of its op for a signature on some hardware, whether or not it is
// in this build.
struct Better {
  std::string_view provider;
  std::string_view cost =
      {};  // of doing without it, where it was measured: "training takes 4 to 12 times as long (H200)"
};

// Passes that a kernel takes from another kernel of its op: providers, best first. The selection takes the
// first that is in this build and accepts; without one the kernel is refused, with the reason.
struct Needs {
  std::vector<std::string_view> forward = {}, backward = {};

  bool operator==(const Needs&) const = default;
};

// What an op asks of its kernels beyond what all are asked: Op::Traits, where it is declared. An op may
// refuse kernels by them before they are asked: Refusal Op::refuses(const Traits&, const Signature&).
struct NoTraits {
  bool operator==(const NoTraits&) const = default;
};
template <class Op>
struct TraitsOf {
  using type = NoTraits;
};
template <class Op>
requires requires { typename Op::Traits; }
struct TraitsOf<Op> {
  using type = typename Op::Traits;
};

// One provider's implementation of one op. `Op` declares:
//   kName, kField (its key in ops_implementation), Signature (what a choice may depend on),
//   Compose (a function on Vars, for `eager`), Forward and Backward (functions on Tensors).
// A kernel has either `compose`, whose gradient comes from the primitives, or `forward` and `backward`.
template <class Op>
struct Kernel {
  std::string_view hardware = hardware::kCpu;  // ignored for eager, which runs everywhere
  Refusal (*accepts)(const typename Op::Signature&, const HardwareFacts&) = nullptr;
  typename Op::Compose* compose = nullptr;
  typename Op::Forward* forward = nullptr;
  typename Op::Backward* backward = nullptr;
  // The passes among these that are null because they are another kernel's.
  Needs needs = {};
  // What this machine lacks for the kernel to run, in a sentence with the mend: a library. Asked where it
  // accepts.
  Refusal (*missing)(const HardwareFacts&) = nullptr;
  // How far the kernel is behind: the best one that its op has for a signature there. Null: none is better.
  // Also asked for signatures that the kernel refuses, where a composition runs instead.
  std::optional<Better> (*better)(const typename Op::Signature&, const HardwareFacts&) = nullptr;
  // False: the last bits of results differ from run to run. Such a kernel is never chosen unless it is
  // written.
  bool deterministic = true;
  // Whether a row's results have the same bits whatever rows are next to it, and however many.
  bool batch_invariant = false;
  // Whether work with this kernel may be captured and run again with other contents of the CPU's tensors: it
  // takes those as tensor/host_inputs.h says. Asked of ops that have such tensors or values.
  bool repeats = false;
  typename TraitsOf<Op>::type traits = {};
  // For kernels that work in on-chip memory: the tilings for a signature, best first. The first that fits the
  // hardware is taken when the kernel is chosen; if none does the kernel is refused.
  std::vector<Tiling> (*tilings)(const typename Op::Signature&) = nullptr;
  // Which of them was taken when the kernel was chosen, of several shapes the smallest: ops that have tilings
  // give it to the kernel.
  int tiling = 0;
  Outline<Op> outline = {};

  bool operator==(const Kernel&) const = default;
};

inline constexpr std::string_view kEager = "eager";

// For outlines: a compact result on the device of `like`, by default of its dtype.
inline Tensor empty_like(const Tensor& like, const Shape& shape, DType dtype) {
  return Tensor::empty(shape, dtype, MemoryTag::kActivations, like.device());
}
inline Tensor empty_like(const Tensor& like, const Shape& shape) {
  return empty_like(like, shape, like.dtype());
}

// The kernel as it is bound on a device that only counts.
template <class Op>
Kernel<Op> outlined(const Kernel<Op>& kernel) {
  const auto first = [](auto own, auto ops) { return own != nullptr ? own : ops; };
  const Outline<Op>& all = outline<Op>();
  Kernel<Op> counted = kernel;
  if (kernel.compose != nullptr) {
    if (all.compose != nullptr) counted.compose = all.compose;
    return counted;
  }
  if (kernel.forward != nullptr) counted.forward = first(kernel.outline.forward, all.forward);
  if (kernel.backward != nullptr) counted.backward = first(kernel.outline.backward, all.backward);
  return counted;
}

// Kernels of an op by provider, in order of preference: the first that accepts is the default.
template <class Op>
Registry<Kernel<Op>>& kernels() {
  return registry<Kernel<Op>>();
}

// The kernel with the passes that it needs from others: null where it has its own.
template <class Op>
Kernel<Op> completed(Kernel<Op> kernel, const Kernel<Op>* forward, const Kernel<Op>* backward) {
  if (forward != nullptr) {
    kernel.forward = forward->forward;
    kernel.outline.forward = forward->outline.forward;
  }
  if (backward != nullptr) {
    kernel.backward = backward->backward;
    kernel.outline.backward = backward->outline.backward;
  }
  return kernel;
}

template <class Signature>
Refusal accept_all(const Signature&, const HardwareFacts&) {
  return std::nullopt;
}

}  // namespace temper::ops
