#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/program.h"
#include "models/model.h"
#include "ops/measure.h"
#include "ops/report.h"

namespace temper::cli {
namespace {

struct OpsArguments {
  std::string model, device, hardware, dtype;
  bool suggest = false, json = false, table = false, verify = false, bench = false, remember = false;
};

DType dtype_of(const std::string& name) {
  if (name.empty()) return DType::kF32;
  const auto dtype = dtype_from_string(name);
  if (!dtype || !is_float(*dtype)) fail("[--dtype] is '{}', expected float32 or bfloat16", name);
  return *dtype;
}

// Of a device that is here, or of hardware that need not be.
HardwareFacts facts_of(const OpsArguments& arguments) {
  const std::string& hardware = arguments.hardware;
  if (hardware.empty()) return detect_hardware(arguments.device.empty() ? "cpu" : arguments.device);
  if (!arguments.device.empty())
    fail(
        "[--hardware] '{}' asks about hardware that need not be here, --device about what is; give one of "
        "them",
        hardware);
  if (detectors().find(hardware) != nullptr)
    fail("[--hardware] '{}' is a device of this machine; use --device {}", hardware, hardware);
  return known_hardware(hardware);
}

// Tries the kernels of a device of this machine; the exit code is 1 when one computes something else.
int try_kernels(const OpsArguments& arguments, DType dtype) {
  if (!arguments.hardware.empty() && detectors().find(arguments.hardware) == nullptr)
    fail("[--hardware] kernels run only on what is here; use --device");
  const HardwareFacts facts = facts_of(arguments);
  const bool timed = arguments.bench || arguments.remember;
  const auto measured = ops::measure_kernels(dtype, facts, timed);
  bool correct = true;
  std::printf("%-16s %-10s %-8s %12s%s\n", "op", "kernel", "result", "error", timed ? "           ms" : "");
  for (const ops::Measurement& m : measured) {
    std::printf("%-16s %-10s ", m.op.c_str(), m.provider.c_str());
    if (m.refusal) {
      std::printf("refused: %s\n", m.refusal->c_str());
      continue;
    }
    correct = correct && m.correct();
    if (m.failure) {
      std::printf("FAILED   %s\n", m.failure->c_str());
      continue;
    }
    std::printf("%-8s %12.2e", m.correct() ? "ok" : "WRONG", m.error);
    if (timed) std::printf(" %12.3f", m.milliseconds);
    std::printf("\n");
  }
  if (timed && facts.device.type != DeviceType::kCpu)
    std::printf("\ntimes include the way of all results to the CPU\n");
  if (arguments.remember) {
    const ops::FieldValues preferred = ops::fastest(measured);
    ops::remember(preferred, facts, dtype);
    std::printf("\n%zu preferences for %s written to %s\n", preferred.size(), facts.name.c_str(),
                ops::preferences_file().c_str());
  }
  return correct ? 0 : 1;
}

bool has_kernels_for(std::string_view hardware) {
  for (const auto& [name, op] : ops::op_infos().entries())
    for (const ops::KernelInfo& kernel : op.kernels())
      if (kernel.hardware == hardware) return true;
  return false;
}

int show_ops(const OpsArguments& arguments) {
  if (arguments.table) {
    std::fputs(ops::kernel_table().c_str(), stdout);
    return 0;
  }
  models::BuildOptions build;
  build.dtype = dtype_of(arguments.dtype);
  if (arguments.verify || arguments.bench || arguments.remember) return try_kernels(arguments, *build.dtype);
  build.facts = facts_of(arguments);
  const ops::HardwareTable& table = ops::hardware_table(build.facts.hardware);
  if (arguments.suggest) {
    if (!has_kernels_for(build.facts.hardware))
      std::printf("# this build has no kernels for %s: eager is all that it can run there\n",
                  table.label.c_str());
    std::printf("# kernels for %s\n%s", build.facts.name.c_str(), ops::suggested_block(build.facts).c_str());
    return 0;
  }
  // Where every field must be written nothing is chosen for the user: what runs without a choice is shown.
  const bool must_write = !table.must_be_written.empty();
  build.ops.emplace();
  if (must_write) build.ops->fallback = ops::kEager;
  build.ops->preferred = {ops::remembered(build.facts, *build.dtype)};
  const std::string where = join_path(arguments.model, "config.json");
  const Json config = arguments.model.empty() ? models::typical_config() : Json::parse_file(where);
  const ops::BoundOps bound = models::bind_kernels(config, where, build);
  const std::vector<std::string> unread = ops::unread_fields();
  if (arguments.json) {
    Json report = ops::explain_json(bound, build.facts);
    report.as_object().emplace_back("unread_fields", Json::Array(unread.begin(), unread.end()));
    std::printf("%s\n", report.dump(2).c_str());
    return 0;
  }
  std::printf("hardware  %s (%s)\nmodel     %s, %s\n\n%s", build.facts.name.c_str(), table.label.c_str(),
              arguments.model.empty() ? "a typical qwen3" : arguments.model.c_str(),
              std::string(to_string(*build.dtype)).c_str(), ops::explain(bound, build.facts).c_str());
  if (!unread.empty()) std::printf("\nno op of this version reads the fields [%s]\n", join(unread).c_str());
  if (must_write)
    std::printf("\non %s every field must be written; 'temper ops --%s --suggest' prints a block\n",
                table.label.c_str(),
                (arguments.hardware.empty() ? "device " + arguments.device : "hardware " + arguments.hardware)
                    .c_str());
  return 0;
}

}  // namespace

void add_ops(Program& program) {
  program.add("ops", "show the kernel of each op, why, and what else there is", [](Options& options) {
    auto arguments = std::make_shared<OpsArguments>();
    options.positional("model", arguments->model, "model folder; without one, a typical model", false);
    options.option("--device", arguments->device,
                   "of this machine: cpu (default), cuda, cuda:N, or a plug-in's");
    options.option("--hardware", arguments->hardware, "other hardware: " + join(known_hardware_names()));
    options.option("--dtype", arguments->dtype, "float32 (default) or bfloat16");
    options.flag("--suggest", arguments->suggest, "print a block for ops_implementation on that hardware");
    options.flag("--verify", arguments->verify, "run each kernel beside the composition on this machine");
    options.flag("--bench", arguments->bench, "the same, timed");
    options.flag("--remember", arguments->remember,
                 "the same, and keep the order where Temper's is only a guess");
    options.flag("--json", arguments->json, "print as JSON");
    options.flag("--table", arguments->table, "print all ops and kernels of this build as Markdown");
    return [arguments] { return show_ops(*arguments); };
  });
}

}  // namespace temper::cli
