#include "backends/plugin/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "backends/plugin/bridge.h"
#include "base/files.h"
#include "base/log.h"
#include "base/open_input.h"
#include "ops/hardware_table.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/swiglu/swiglu.h"
#include "version.h"

namespace temper::backends {

template <>
struct Bridge<ops::RmsNorm> {
  static std::vector<temper_attribute> attributes(const ops::RmsNorm::Signature& signature) {
    return {{"dtype", static_cast<int64_t>(signature.dtype)}, {"hidden", signature.hidden}};
  }
  static ops::Refusal refuses(const ops::RmsNorm::Signature& signature) {
    if (signature.offset != 0) return "plug-ins know weights alone, not their distance from one";
    return std::nullopt;
  }
  static Tensor rows(const Tensor& tensor) { return tensor.contiguous().reshape({-1, tensor.dim(-1)}); }

  static ops::RmsNorm::Output forward(const PluginKernel& kernel, const ops::RmsNorm& op) {
    // Plug-ins know no residual: the sum is formed here.
    const Tensor sum = op.residual.defined() ? op.x.clone() : Tensor();
    if (sum.defined()) add_in_place(sum, op.residual);
    const Tensor x = rows(sum.defined() ? sum : op.x);
    const ops::RmsNorm::Output out{Tensor::empty(op.x.shape(), op.x.dtype()),
                                   Tensor::empty({x.dim(0)}, DType::kF32), sum};
    const temper_rms_norm_forward arguments{view_of(x), view_of(op.weight), view_of(rows(out.y)),
                                            view_of(out.inv_rms), op.eps};
    call(kernel, kernel.forward, &arguments);
    return out;
  }

  static Tensor backward(const PluginKernel& kernel, const ops::RmsNorm& op, const Tensor& inv_rms,
                         const Tensor& dy, const Tensor& dsum, const GradTarget& weight) {
    const Tensor dx = Tensor::empty(op.x.shape(), op.x.dtype());
    const Tensor x = rows(op.x);
    // Plug-ins write gradients of parameters in float32.
    const Tensor dweight = weight.wanted() ? weight.buffer.to(DType::kF32) : Tensor();
    const temper_rms_norm_backward arguments{
        view_of(x),        view_of(op.weight), view_of(inv_rms), view_of(rows(dy)),
        view_of(rows(dx)), view_of(dweight),   op.eps,           weight.accumulate ? 1 : 0};
    call(kernel, kernel.backward, &arguments);
    if (weight.wanted() && weight.buffer.dtype() != DType::kF32) weight.buffer.copy_from(dweight);
    if (dsum.defined()) add_in_place(dx, dsum);
    return dx;
  }
};

template <>
struct Bridge<ops::Swiglu> {
  static std::vector<temper_attribute> attributes(const ops::Swiglu::Signature& signature) {
    return {{"dtype", static_cast<int64_t>(signature.dtype)}, {"intermediate", signature.intermediate}};
  }
  static ops::Refusal refuses(const ops::Swiglu::Signature& signature) {
    if (signature.activation != ops::Activation::kSilu) return "plug-ins know silu alone";
    return std::nullopt;
  }

  static Tensor forward(const PluginKernel& kernel, const ops::Swiglu& op) {
    const Tensor y = Tensor::empty({op.gate_up.dim(0), op.gate_up.dim(1) / 2}, op.gate_up.dtype());
    const temper_swiglu_forward arguments{view_of(op.gate_up), view_of(y)};
    call(kernel, kernel.forward, &arguments);
    return y;
  }

  static Tensor backward(const PluginKernel& kernel, const ops::Swiglu& op, const Tensor& dy,
                         const Tensor& y) {
    const Tensor dgate_up = Tensor::empty(op.gate_up.shape(), op.gate_up.dtype());
    const temper_swiglu_backward arguments{view_of(op.gate_up), view_of(dy), view_of(dgate_up)};
    call(kernel, kernel.backward, &arguments);
    if (y.defined()) {  // plug-ins make it by their forward only
      const temper_swiglu_forward again{view_of(op.gate_up), view_of(y)};
      call(kernel, kernel.forward, &again);
    }
    return dgate_up;
  }
};

namespace {

// What a registration has to say when it fails; the program ends then.
struct Registration {
  std::string error;
};

int refuse(temper_host* host, const std::string& error) {
  static_cast<Registration*>(host->state)->error = error;
  return 1;
}

bool given(const char* text) { return text != nullptr && *text != '\0'; }

int add_package(temper_host* host, const char* name) {
  if (!given(name)) return refuse(host, "a package needs a name");
  installed_packages().insert(name);
  return 0;
}

int add_any_kernel(temper_host* host, const temper_kernel* kernel, temper_demand demand) {
  if (kernel == nullptr || !given(kernel->op) || !given(kernel->provider) || !given(kernel->hardware) ||
      kernel->forward == nullptr || kernel->backward == nullptr)
    return refuse(host, "a kernel needs op, provider, hardware, forward and backward");
  if (kernel->provider == ops::kEager)
    return refuse(host, "'eager' is the composition's name; choose another");
  if (ops::hardware_tables().find(kernel->hardware) == nullptr)
    return refuse(host, fmt::format("kernel '{}' is for '{}', which no one has registered", kernel->provider,
                                    kernel->hardware));
  PluginKernel copy{kernel->provider, kernel->hardware, kernel->accepts,
                    kernel->forward,  kernel->backward, demand};
  const std::string_view op = kernel->op;
  std::optional<std::string> error =
      fmt::format("op '{}' cannot come from a plug-in; rms_norm and swiglu can", op);
  if (op == ops::RmsNorm::kName) error = add_plugin_kernel<ops::RmsNorm>(std::move(copy));
  if (op == ops::Swiglu::kName) error = add_plugin_kernel<ops::Swiglu>(std::move(copy));
  return error ? refuse(host, *error) : 0;
}

int add_kernel(temper_host* host, const temper_kernel* kernel) {
  return add_any_kernel(host, kernel, nullptr);
}

int add_kernel_on_chip(temper_host* host, const temper_kernel* kernel, temper_demand demand) {
  if (demand == nullptr) return refuse(host, "a kernel that works in on-chip memory needs its demand");
  return add_any_kernel(host, kernel, demand);
}

// A plug-in shows the first of its devices.
Detector detector_of(const std::string& name, int (*detect)(temper_facts*)) {
  const auto count = [detect] {
    temper_facts found{};
    return detect != nullptr && detect(&found) != 0 ? 1 : 0;
  };
  const auto facts_of = [detect, name](int) {
    temper_facts found{};
    if (detect(&found) == 0) fail_resources("[device] no device of '{}' was found on this machine", name);
    HardwareFacts facts;
    facts.hardware = name;
    facts.name = found.name == nullptr ? name : found.name;
    facts.cores = found.cores;
    facts.native_bf16 = found.native_bf16 != 0;
    facts.compute_capability = found.compute_capability;
    facts.memory_bytes = found.memory_bytes;
    facts.scratch_bytes = found.scratch_bytes;
    facts.scratch_name = "on-chip memory";
    return facts;
  };
  return {count, facts_of};
}

int add_hardware(temper_host* host, const temper_hardware* hardware) {
  if (hardware == nullptr || !given(hardware->hardware) || !given(hardware->label))
    return refuse(host, "hardware needs a name and a label");
  if (hardware->num_names < 0 || (hardware->num_names > 0 && hardware->names == nullptr))
    return refuse(host, fmt::format("hardware '{}' has {} names, but no list", hardware->hardware,
                                    hardware->num_names));
  const std::string name = hardware->hardware;
  if (ops::hardware_tables().find(name) != nullptr)
    return refuse(host, fmt::format("hardware '{}' is registered already", name));
  ops::HardwareTable table;
  table.label = hardware->label;
  table.strict = hardware->strict != 0;
  // Every field has an entry, those of ops when they are registered: what the plug-in does not name runs as
  // eager.
  for (const auto& [field, names] : ops::hardware_table(hardware::kCpu).fields) table.fields[field] = {};
  for (int32_t i = 0; i < hardware->num_names; ++i) {
    const temper_name& entry = hardware->names[i];
    if (!given(entry.field) || !given(entry.name) || !given(entry.provider))
      return refuse(host, fmt::format("name {} of hardware '{}' needs field, name and provider", i, name));
    table.fields[entry.field].names.push_back({entry.name, entry.provider});
  }
  ops::hardware_tables().add(name, table);
  detectors().add(name, detector_of(name, hardware->detect));
  return 0;
}

template <class Function>
Function* find_symbol(void* library, const char* name, const std::string& path) {
  void* symbol = ::dlsym(library, name);
  if (symbol == nullptr) fail("[{}] is not a plug-in of Temper: it has no function {}", path, name);
  return reinterpret_cast<Function*>(symbol);
}

// The library stays open: its functions are kernels now.
void load_plugin(const std::string& path) {
  if (exists(path)) ::close(open_input(path, InputKind::kFile));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail("[{}] cannot be loaded: {}", path, ::dlerror());
  const uint32_t abi = find_symbol<uint32_t()>(library, "temper_plugin_abi", path)();
  if (abi != TEMPER_PLUGIN_ABI)
    fail(
        "[{}] was made for plug-in ABI {}, this is ABI {}; build it again with this version's "
        "temper/plugin.h",
        path, abi, TEMPER_PLUGIN_ABI);
  Registration registration;
  temper_host host{TEMPER_PLUGIN_ABI, TEMPER_VERSION, &registration,     add_kernel,
                   add_hardware,      add_package,    add_kernel_on_chip};
  const int code = find_symbol<int(temper_host*)>(library, "temper_plugin_register", path)(&host);
  if (!registration.error.empty()) fail("[{}] cannot be registered: {}", path, registration.error);
  if (code != 0) fail("[{}] cannot be registered: it returned {}", path, code);
  log_info(fmt::format("plug-in loaded: {}", path));
}

}  // namespace

void load_plugins(const std::vector<std::string>& paths) {
  static std::set<std::string> loaded;  // canonical paths
  for (const std::string& path : paths) {
    if (!exists(path)) fail("[{}] no such plug-in", path);
    if (is_directory(path)) {
      std::vector<std::string> files;
      for (const std::string& name : list_directory(path))
        if (name.ends_with(".so")) files.push_back(join_path(path, name));
      if (files.empty()) fail("[{}] holds no plug-ins (*.so)", path);
      load_plugins(files);
      continue;
    }
    const std::string file = std::filesystem::canonical(path);
    if (loaded.contains(file)) continue;
    load_plugin(file);
    loaded.insert(file);
  }
}

std::vector<std::string> plugin_paths_from_environment() {
  std::vector<std::string> paths;
  const char* variable = std::getenv("TEMPER_PLUGIN_PATH");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) paths.emplace_back(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return paths;
}

void register_plugin() { load_plugins(plugin_paths_from_environment()); }

}  // namespace temper::backends
