#pragma once
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "ops/hardware_table.h"
#include "ops/kernel.h"

// The ops of this build, for code that goes through all of them.
namespace temper::ops {

struct KernelInfo {
  std::string provider, hardware;  // hardware is empty for eager, which runs everywhere
  bool batch_invariant = false;
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
  std::shared_ptr<const void> (*outlined)(const void* kernel) = nullptr;  // of a Kernel of this op

  bool operator==(const OpInfo&) const = default;
};

// By name, in the order of registration.
inline Registry<OpInfo>& op_infos() { return registry<OpInfo>(); }

template <class Op>
std::vector<KernelInfo> kernel_infos() {
  std::vector<KernelInfo> all;
  for (const auto& [provider, kernel] : kernels<Op>().entries())
    all.push_back({provider, kernel.compose != nullptr ? std::string() : std::string(kernel.hardware),
                   kernel.batch_invariant});
  return all;
}

template <class Op>
std::shared_ptr<const void> outlined_kernel(const void* kernel) {
  return std::make_shared<const Kernel<Op>>(outlined(*static_cast<const Kernel<Op>*>(kernel)));
}

// What an op's field may say in addition to `eager` on the hardware that Temper knows itself
// (ops/hardware_table.h).
struct OpNames {
  FieldNames cpu = {}, gpu = {}, npu = {};
};
void add_names(std::string_view field, const OpNames& names);

// An op, its composition, which runs everywhere, what its results take, and the names of its kernels.
template <class Op>
void register_op(typename Op::Compose* compose, Probe* probe = nullptr, const Outline<Op>& results = {},
                 const OpNames& names = {}) {
  add_names(Op::kField, names);
  op_infos().add(Op::kName, {Op::kName, Op::kField, kernel_infos<Op>, probe, outlined_kernel<Op>});
  outline<Op>() = results;
  kernels<Op>().add(kEager, {.accepts = accept_all<typename Op::Signature>, .compose = compose});
}

}  // namespace temper::ops
