#include "backends/plugin/bridge.h"

#include <algorithm>

namespace temper::backends {

temper_tensor view_of(const Tensor& tensor) {
  temper_tensor view{};
  if (!tensor.defined()) return view;
  static_assert(static_cast<int>(DType::kF32) == TEMPER_F32 &&
                    static_cast<int>(DType::kBF16) == TEMPER_BF16 &&
                    static_cast<int>(DType::kF16) == TEMPER_F16,
                "the plug-in interface numbers dtypes as DType does");
  view.data = tensor.raw();
  view.dtype = static_cast<int32_t>(tensor.dtype());
  view.ndim = tensor.ndim();
  for (int i = 0; i < tensor.ndim(); ++i) {
    view.sizes[i] = tensor.dim(i);
    view.strides[i] = tensor.stride(i);
  }
  return view;
}

temper_facts view_of(const HardwareFacts& facts) {
  return {facts.hardware.c_str(),   facts.name.c_str(), facts.cores,        facts.native_bf16 ? 1 : 0,
          facts.compute_capability, facts.memory_bytes, facts.scratch_bytes};
}

ops::Refusal ask(const PluginKernel& kernel, const std::vector<temper_attribute>& signature,
                 const HardwareFacts& facts) {
  if (kernel.accepts == nullptr) return std::nullopt;
  char why[256] = "";
  const temper_facts view = view_of(facts);
  if (kernel.accepts(signature.data(), static_cast<int32_t>(signature.size()), &view, why, sizeof why) != 0)
    return std::nullopt;
  why[sizeof why - 1] = '\0';
  return *why == '\0' ? std::string("the plug-in refuses without a reason") : std::string(why);
}

int64_t demand_of(const PluginKernel& kernel, const std::vector<temper_attribute>& signature) {
  const int64_t bits = kernel.demand(signature.data(), static_cast<int32_t>(signature.size()));
  if (bits < 0)
    throw Error(fmt::format("the plug-in kernel '{}' says that it needs {} bits of on-chip memory",
                            kernel.provider, bits),
                ErrorKind::kDefect);
  return bits;
}

void call(const PluginKernel& kernel, int (*function)(const void*), const void* arguments) {
  const int code = function(arguments);
  if (code != 0)
    throw Error(fmt::format("the plug-in kernel '{}' failed with code {}", kernel.provider, code),
                ErrorKind::kDefect);
}

}  // namespace temper::backends
