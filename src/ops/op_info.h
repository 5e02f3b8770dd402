#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "ops/kernel.h"

// The ops of this build, for code that goes through all of them.
namespace temper::ops {

struct KernelInfo {
  std::string provider, hardware;  // hardware is empty for eager, which runs everywhere
};

// One run of a kernel on inputs made beforehand: the op's results, then the gradients, as float32.
using ProbeRun = std::function<std::vector<Tensor>()>;
// Binds one provider's kernel and makes up inputs of a usual size, always the same ones (ops/probe.h). An
// error when the kernel cannot run.
using Probe = ProbeRun(const std::string& provider, DType dtype, const HardwareFacts& facts);

struct OpInfo {
  std::string_view name, field;
  std::vector<KernelInfo> (*kernels)() = nullptr;
  Probe* probe = nullptr;

  bool operator==(const OpInfo&) const = default;
};

// By name, in the order of registration.
inline Registry<OpInfo>& op_infos() { return registry<OpInfo>(); }

template <class Op>
std::vector<KernelInfo> kernel_infos() {
  std::vector<KernelInfo> all;
  for (const auto& [provider, kernel] : kernels<Op>().entries())
    all.push_back({provider, kernel.compose != nullptr ? std::string() : std::string(kernel.hardware)});
  return all;
}

// An op and its composition, which runs everywhere.
template <class Op>
void register_op(typename Op::Compose* compose, Probe* probe = nullptr) {
  op_infos().add(Op::kName, {Op::kName, Op::kField, kernel_infos<Op>, probe});
  kernels<Op>().add(kEager, {.accepts = accept_all<typename Op::Signature>, .compose = compose});
}

}  // namespace temper::ops
