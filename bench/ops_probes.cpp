// Ops without a benchmark of their own: both passes on the inputs that `temper ops --bench` tries them with,
// whose results are copied to the CPU as float32.
#include "bench/ops.h"
#include "ops/op_info.h"

namespace temper::bench {

void add_probes() {
  for (const auto& [name, op] : ops::op_infos().entries()) {
    if (op.probe == nullptr || measured_ops().contains(name)) continue;
    for (const DType dtype : kDTypes)
      for (const ops::KernelInfo& kernel : op.kernels()) {
        if (!kernel.hardware.empty() && kernel.hardware != machine().hardware) continue;
        const auto prepare = [dtype, probe = op.probe, provider = kernel.provider] {
          return Timed{[run = probe(provider, dtype, machine())] { run(); }};
        };
        try {
          prepare();
        } catch (const Error&) {
          continue;  // it refuses this dtype, or this machine
        }
        add(fmt::format("{}/{}/{}/passes", name, kernel.provider, label(dtype, "probe")), dtype, prepare);
      }
  }
}

}  // namespace temper::bench
