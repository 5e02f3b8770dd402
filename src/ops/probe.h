#pragma once
#include "ops/op_info.h"
#include "ops/selection.h"

// Trying kernels on this machine: each op makes up inputs of a usual size, always the same ones, and runs a
// kernel on them, forward and backward.
namespace temper::ops {

// The usual size.
inline constexpr int64_t kProbeTokens = 256, kProbeHidden = 1024, kProbeInner = 3072, kProbeVocab = 2048,
                         kProbeHeads = 16, kProbeKvHeads = 8, kProbeHeadDim = 64;

// Numbers between -scale and scale of the stream `seed`, rounded to dtype, on the device of the facts.
Tensor probe_values(const HardwareFacts& facts, uint64_t seed, const Shape& shape, DType dtype,
                    double scale = 1);
// Integers from 0 to below, the same way.
Tensor probe_ints(const HardwareFacts& facts, uint64_t seed, int64_t count, int64_t below);
// Runs backward from y with the gradient dy; y's values and the inputs' gradients.
std::vector<Tensor> probe_backward(Tape& tape, const Var& y, const Tensor& dy,
                                   const std::vector<const Var*>& inputs);
// As float32, on the CPU.
std::vector<Tensor> as_float(const std::vector<Tensor>& tensors);

// Only this kernel: an error when it cannot run.
template <class Op>
BoundOps bind_probe(const std::string& provider, const typename Op::Signature& signature,
                    const HardwareFacts& facts) {
  Binder binder({.fallback = provider}, facts);
  binder.bind<Op>(std::vector<typename Op::Signature>{signature});
  const BoundOps bound = binder.finish();
  return only_counts(facts.device) ? bound.outlined() : bound;
}

}  // namespace temper::ops
