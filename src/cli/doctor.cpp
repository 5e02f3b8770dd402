#include <cstdio>

#include "backends/peak.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/program.h"
#include "device/facts.h"
#include "device/memory.h"
#include "models/model.h"
#include "version.h"

namespace temper::cli {
namespace {

int doctor(bool peak) {
  const HardwareFacts facts = detect_cpu();
  std::printf("temper      %s (%s build)\n", TEMPER_VERSION, TEMPER_BUILD_TYPE);
  std::printf("processor   %s, %d threads\n", facts.name.c_str(), facts.cores);
  std::printf("features    %s\n", join(facts.features, " ").c_str());
  std::printf("bf16        %s\n",
              facts.native_bf16 ? "in hardware" : "not in hardware: products are computed in float32");
  std::printf("memory      %s free for tensors\n", format_bytes(facts.memory_bytes).c_str());
  std::printf("disk        %s free here\n", format_bytes(free_disk_bytes(".")).c_str());
  std::printf("models      %s\n", join(models::supported_model_types()).c_str());
  const ops::BoundOps ops = models::bind_kernels(models::typical_config(), "typical model", {});
  std::printf("kernels     defaults on this machine\n");
  for (const auto& choice : ops.choices())
    std::printf("  %-34s %s\n", choice.field.c_str(), choice.provider.c_str());
  if (peak)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      std::printf("peak        %s products: %.0f GFLOP/s\n", std::string(to_string(dtype)).c_str(),
                  backends::measured_matmul_peak(dtype, num_threads()) / 1e9);
  return 0;
}

}  // namespace

void add_doctor(Program& program) {
  program.add("doctor", "show what this machine and this build can do", [](Options& options) {
    auto peak = std::make_shared<bool>(false);
    options.flag("--peak", *peak, "measure the peak of matrix products");
    return [peak] { return doctor(*peak); };
  });
}

}  // namespace temper::cli
