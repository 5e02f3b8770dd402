#include <cstdio>
#include <cstdlib>

#include "backends/peak.h"
#include "base/files.h"
#include "base/parts/build.h"
#include "base/parts/libraries.h"
#include "base/parts/rooms.h"
#include "base/text.h"
#include "base/threads/threads.h"
#include "cli/arguments/line_reader.h"
#include "cli/arguments/program.h"
#include "device/facts.h"
#include "device/memory.h"
#include "models/model.h"
#include "ops/report.h"
#include "version.h"

namespace temper::cli {
namespace {

std::string line_of(const std::string& type, const HardwareFacts& facts) {
  std::string text = fmt::format("{}:{}  {}", type, facts.device.index, facts.name);
  if (facts.memory_bytes > 0) text += ", " + format_bytes(facts.memory_bytes);
  if (facts.compute_capability > 0)
    text += fmt::format(", compute capability {}.{}", facts.compute_capability / 10,
                        facts.compute_capability % 10);
  if (!facts.driver.empty()) text += ", driver " + facts.driver;
  return text;
}

// What an error says instead of failing.
template <class F>
std::string said_by(F&& look) {
  try {
    return look();
  } catch (const Error& error) {
    return error.what();
  }
}

void show_devices() {
  if (detectors().find("cuda") == nullptr)
    std::printf("gpu         this build has no CUDA rooms%s\n",
                has_nvidia_gpu() ? ", this machine has a GPU" : "");
  for (const auto& [type, detector] : detectors().entries()) {
    const char* label = type == "cuda" ? "gpu" : type.c_str();
    int count = 0;
    const std::string none = said_by([&, &detector = detector] {
      count = detector.count();
      return "none";
    });
    if (count == 0) std::printf("%-11s %s\n", label, none.c_str());
    for (int i = 0; i < count; ++i) {
      const std::string text =
          said_by([&, &type = type, &detector = detector] { return line_of(type, detector.facts(i)); });
      std::printf("%-11s %s\n", label, text.c_str());
    }
  }
}

void show_libraries() {
  for (const auto& [name, probe] : registry<LibraryProbe>().entries()) {
    const LibraryState state = probe();
    std::printf("%-11s %s\n", name.c_str(), state.text.c_str());
  }
}

// What a build does not have, and what brings it; then what it misses on the GPUs that are here.
void show_what_is_missing() {
  for (const std::string& line : left_out_lines(rooms_of_build()))
    std::printf("left out    %s\n", line.c_str());
  for (const auto& [type, detector] : detectors().entries()) {
    models::BuildOptions build;
    build.dtype = DType::kBF16;
    const std::string none = said_by([&, &type = type] {
      build.facts = detect_hardware(type);
      return "";
    });
    if (!none.empty() || !ops::hardware_table(build.facts.hardware).must_be_written.empty()) continue;
    const ops::BoundOps ops = models::bind_kernels(models::typical_config(), "typical model", build);
    for (const auto& choice : ops.choices())
      if (choice.shortfall) std::printf("%-11s %s\n", "slow", ops::describe_shortfall(choice).c_str());
  }
}

int doctor(bool peak) {
  const HardwareFacts facts = detect_cpu();
  std::printf("temper      %s, %s build\n", program_version().c_str(), TEMPER_BUILD_TYPE);
  std::printf("processor   %s, %d threads\n", facts.name.c_str(), facts.cores);
  const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  std::printf("features    %s%s\n",
              facts.features.empty() ? "neither AVX2 nor AVX-512" : join(facts.features, " ").c_str(),
              limit == nullptr ? "" : fmt::format(" (within ONEDNN_MAX_CPU_ISA={})", limit).c_str());
  std::printf("bf16        %s\n",
              facts.native_bf16 ? "in hardware" : "not in hardware: matrix multiplications use float32");
  std::printf("memory      %s free for tensors\n", format_bytes(facts.memory_bytes).c_str());
  show_devices();
  show_libraries();
  show_what_is_missing();
  std::printf("disk        %s free here\n", format_bytes(free_disk_bytes(".")).c_str());
  std::printf("models      %s\n", join(models::supported_model_types()).c_str());
  std::printf("libedit     %s\n", line_editing_here().c_str());
  const ops::BoundOps ops = models::bind_kernels(models::typical_config(), "typical model", {});
  std::printf("kernels     defaults on the processor (temper ops --device cuda: on a GPU)\n");
  for (const auto& choice : ops.choices())
    std::printf("  %-34s %s\n", choice.field.c_str(), choice.provider.c_str());
  if (peak) {
    for (const DType dtype : {DType::kF32, DType::kBF16})
      std::printf("peak        %s matrix multiplication: %.0f GFLOP/s\n",
                  std::string(to_string(dtype)).c_str(),
                  backends::measured_matmul_peak(dtype, num_threads()) / 1e9);
    std::printf("peak        memory: %.1f GB/s, read and written by a copy\n",
                backends::measured_memory_bandwidth(num_threads()) / 1e9);
  }
  return 0;
}

}  // namespace

void add_doctor(Program& program) {
  program.add("doctor", "Show what this machine and this build can do.", [](Options& options) {
    auto peak = std::make_shared<bool>(false);
    options.flag("--peak", *peak, "Measure the peaks of arithmetic and of memory.");
    options.example("temper doctor --peak");
    return [peak] { return doctor(*peak); };
  });
}

}  // namespace temper::cli
