#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernel.h"
#include "temper/plugin.h"

// From a plug-in's C functions to a Kernel<Op>. A Kernel holds plain function pointers, which carry no state:
// each slot has functions of its own, made at compile time, that look up the plug-in's.
namespace temper::backends {

struct PluginKernel {
  std::string provider, hardware;
  temper_accepts accepts = nullptr;
  int (*forward)(const void*) = nullptr;
  int (*backward)(const void*) = nullptr;
  temper_demand demand = nullptr;  // of kernels that work in on-chip memory
};

constexpr size_t kMostPluginKernels = 16;  // of one op

// The plug-ins' kernels of an op; they stay where they are.
template <class Op>
std::vector<PluginKernel>& plugin_kernels() {
  static std::vector<PluginKernel> kernels = [] {
    std::vector<PluginKernel> empty;
    empty.reserve(kMostPluginKernels);
    return empty;
  }();
  return kernels;
}

temper_tensor view_of(const Tensor& tensor);
temper_facts view_of(const HardwareFacts& facts);
ops::Refusal ask(const PluginKernel& kernel, const std::vector<temper_attribute>& signature,
                 const HardwareFacts& facts);
int64_t demand_of(const PluginKernel& kernel, const std::vector<temper_attribute>& signature);  // in bits
void call(const PluginKernel& kernel, int (*function)(const void*), const void* arguments);

// For each op: attributes(signature), refuses(signature), what the C interface cannot say, forward(kernel,
// op's arguments…), backward(kernel, …).
template <class Op>
struct Bridge;

template <class Op, size_t kSlot, bool kForward, class Result, class... Arguments>
auto plugin_function(Result (*)(Arguments...)) {
  return +[](Arguments... arguments) -> Result {
    const PluginKernel& kernel = plugin_kernels<Op>()[kSlot];
    if constexpr (kForward)
      return Bridge<Op>::forward(kernel, arguments...);
    else
      return Bridge<Op>::backward(kernel, arguments...);
  };
}

template <class Op, size_t kSlot>
ops::Kernel<Op> plugin_kernel() {
  ops::Kernel<Op> kernel;
  kernel.hardware = plugin_kernels<Op>()[kSlot].hardware;
  kernel.accepts = [](const typename Op::Signature& signature, const HardwareFacts& facts) {
    if (ops::Refusal refusal = Bridge<Op>::refuses(signature)) return refusal;
    return ask(plugin_kernels<Op>()[kSlot], Bridge<Op>::attributes(signature), facts);
  };
  if (plugin_kernels<Op>()[kSlot].demand != nullptr)
    kernel.tilings = [](const typename Op::Signature& signature) {
      return std::vector<ops::Tiling>{
          {"whole", demand_of(plugin_kernels<Op>()[kSlot], Bridge<Op>::attributes(signature))}};
    };
  kernel.forward = plugin_function<Op, kSlot, true>(static_cast<typename Op::Forward*>(nullptr));
  kernel.backward = plugin_function<Op, kSlot, false>(static_cast<typename Op::Backward*>(nullptr));
  return kernel;
}

template <class Op, size_t... kSlots>
ops::Kernel<Op> plugin_kernel_at(size_t slot, std::index_sequence<kSlots...>) {
  ops::Kernel<Op> kernel;
  ((kSlots == slot ? void(kernel = plugin_kernel<Op, kSlots>()) : void()), ...);
  return kernel;
}

// Registers a plug-in's kernel: preferred to `eager`, but not to Temper's own.
template <class Op>
std::optional<std::string> add_plugin_kernel(PluginKernel kernel) {
  std::vector<PluginKernel>& all = plugin_kernels<Op>();
  if (all.size() == kMostPluginKernels)
    return fmt::format("there are {} plug-in kernels of {} already", kMostPluginKernels, Op::kName);
  if (ops::kernels<Op>().find(kernel.provider) != nullptr)
    return fmt::format("{} has a kernel named '{}' already", Op::kName, kernel.provider);
  all.push_back(std::move(kernel));
  ops::kernels<Op>().add_before(
      ops::kEager, all.back().provider,
      plugin_kernel_at<Op>(all.size() - 1, std::make_index_sequence<kMostPluginKernels>()));
  return std::nullopt;
}

}  // namespace temper::backends
